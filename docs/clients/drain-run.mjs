#!/usr/bin/env node
// Ask Sluice for one drain run of this UTC minute. Node.js 18 or newer, no dependencies.
//
//   SLUICE_WEBHOOK_URL         https://....execute-api.<region>.amazonaws.com/drain-runs (the stack's output WebhookUrl)
//   SLUICE_JOB_CLASS           a class with `webhook = true` in sluice.toml
//   SLUICE_WEBHOOK_TOKEN_FILE  a file with the token (a mounted secret: it follows a rotation by itself), or
//   SLUICE_WEBHOOK_TOKEN       the token itself
//
//   * * * * *  node drain-run.mjs          one request, from a crontab
//   node drain-run.mjs --every-minute      a clock of its own, for a container without cron
//
// Safe to run twice, late or in two places: the run's id is the class and the minute, so every repeat of a minute means
// the same run. Exit code 0: the run exists. 1: it was refused, trying again is useless. 2: the settings are wrong.
// 3: nobody answered in time; the next minute is a run of its own, so nothing needs to be made up for.

import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";

const OLDEST_NODE = 18; // the first with fetch
const MINUTE_MS = 60_000;
const GIVE_UP_MS = 100_000; // after the minute began: the webhook takes two minutes, the rest is for clocks that differ
const ATTEMPT_TIMEOUT_MS = 12_000; // a little more than the gateway's own 10 s
const FIRST_PAUSE_MS = Number(process.env.SLUICE_FIRST_PAUSE_MS ?? 1_000);
const LONGEST_PAUSE_MS = 15_000;
const EXIT = { accepted: 0, refused: 1, settings: 2, unanswered: 3 };

class SettingsError extends Error {}

function settings(env) {
  const node = process.versions.node;
  if (Number.parseInt(node, 10) < OLDEST_NODE) {
    throw new SettingsError(`Node.js ${OLDEST_NODE} or newer is needed: this is ${node}`);
  }
  for (const name of ["SLUICE_WEBHOOK_URL", "SLUICE_JOB_CLASS"]) {
    if (!env[name]) throw new SettingsError(`${name} is not set`);
  }
  const url = parsed(env.SLUICE_WEBHOOK_URL);
  if (!url) throw new SettingsError("SLUICE_WEBHOOK_URL is not a URL");
  const local = ["localhost", "127.0.0.1", "[::1]"].includes(url.hostname) || url.hostname.endsWith(".localhost");
  if (url.protocol !== "https:" && !local) throw new SettingsError("SLUICE_WEBHOOK_URL must be https: it carries a token");
  return { url, jobClass: env.SLUICE_JOB_CLASS, token: env.SLUICE_WEBHOOK_TOKEN, file: env.SLUICE_WEBHOOK_TOKEN_FILE };
}

// URL.canParse would say it in one line, and came with 18.17 only.
function parsed(text) {
  try {
    return new URL(text);
  } catch {
    return null;
  }
}

// Read for every attempt: a rotation may happen between two of them.
async function readToken({ token, file }) {
  const text = file ? await readFile(file, "utf8").catch(() => "") : (token ?? "");
  if (!text.trim()) throw new SettingsError("neither SLUICE_WEBHOOK_TOKEN_FILE nor SLUICE_WEBHOOK_TOKEN holds a token");
  return text.trim();
}

function requestFor(jobClass, nowMs) {
  const minute = new Date(nowMs - (nowMs % MINUTE_MS)).toISOString();
  return { run_id: `${jobClass}@${minute.slice(0, 16)}Z`, scheduled_at: minute, job_class: jobClass };
}

async function attempt(config, body) {
  const headers = { authorization: `Bearer ${await readToken(config)}`, "content-type": "application/json" };
  const signal = AbortSignal.timeout(ATTEMPT_TIMEOUT_MS);
  try {
    // A redirect is an error: the token must not follow it to another host.
    const response = await fetch(config.url, { method: "POST", headers, body, signal, redirect: "error" });
    const answer = await response.json().catch(() => ({}));
    return { status: response.status, answer, waitMs: 1000 * (Number(response.headers.get("retry-after")) || 0) };
  } catch (error) {
    return { status: 0, answer: { reason: error?.cause?.code ?? error?.name ?? "no answer" }, waitMs: 0 };
  }
}

// Nobody answered, too many requests, or the server's own fault: only these can pass by themselves.
const passes = (status) => status === 0 || status === 429 || status >= 500;

async function drainRun(config, startMs = Date.now()) {
  const asked = requestFor(config.jobClass, startMs);
  const body = JSON.stringify(asked); // the same bytes in every attempt, or a retry would be another run
  for (let number = 1, pauseMs = FIRST_PAUSE_MS; ; number += 1, pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
    const { status, answer, waitMs } = await attempt(config, body);
    const said = answer.reason ?? (status === 202 ? `created: ${answer.created}` : "no reason given");
    console.log(`${asked.run_id} attempt ${number}: ${status || "no answer"} (${said})`);
    if (status === 202) return EXIT.accepted;
    if (!passes(status)) return EXIT.refused;
    // Jitter, or every client that a short outage has stopped comes back at the same moment.
    const nextMs = Math.max(waitMs, pauseMs) * (1 + Math.random() / 2);
    if (Date.now() + nextMs - Date.parse(asked.scheduled_at) > GIVE_UP_MS) return EXIT.unanswered;
    await sleep(nextMs);
  }
}

async function everyMinute(config) {
  for (;;) {
    await sleep(MINUTE_MS - (Date.now() % MINUTE_MS));
    // Not waited for: a slow answer must not cost the next minute its run.
    drainRun(config).catch((error) => console.error(`error: ${error.message}`));
  }
}

try {
  const config = settings(process.env);
  await readToken(config);
  if (process.argv.includes("--every-minute")) await everyMinute(config);
  process.exitCode = await drainRun(config);
} catch (error) {
  if (!(error instanceof SettingsError)) throw error;
  console.error(`error: ${error.message}`);
  process.exitCode = EXIT.settings;
}
