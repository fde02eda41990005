"""Clinical records of people who do not exist. Everything about them is a canary."""

from __future__ import annotations

import json
from typing import Any

LABELS = "discharge_letter, lab_report, referral, other"

PATIENT: dict[str, Any] = {
    "name": {"given": ["Hannelore", "Ilse"], "family": "Kanarienvogel-Świątek"},
    "born": "1957-03-09",
    "insurance_number": "K471147114",
    "phone": "+49 171 4711004711 004",
    "address": {"street": "Am Alten Markt 17", "city": "Zwiefalten"},
    "case": 9021090210,
}
CANARIES = (
    *(
        "Hannelore",
        "Ilse",
        "Kanarienvogel",
        "Świątek",
        "1957-03-09",
        "K471147114",
        "4711004711",
        "Zwiefalten",
        "9021090210",
    ),
    *("Am Alten Markt", "diabetes-canary", "discharge_letter"),
)
"""What must not be seen outside. Long enough that no hash or timestamp in a log contains one by chance."""

LETTER = """Entlassungsbrief / discharge letter

We report on Mrs. HANNELORE ILSE  Kanarienvogel-Świątek, born 1957-03-09, insured as K471147114, living at
Am Alten Markt 17 in Zwiefalten (phone +49 171 4711004711 004), case 9021090210, whom we discharged after treatment of
diabetes-canary. Ilse's daughter was informed.
"""


def record(*, text: str = LETTER, patient: Any = None) -> bytes:
    found = {"patient": PATIENT if patient is None else patient, "document": {"text": text}}
    return json.dumps(found, ensure_ascii=False).encode()


def records(count: int) -> dict[str, bytes]:
    """Record ids with their records: letters, reports and referrals by turns."""
    texts = (LETTER, "Lab report\nHbA1c 7.1 %, creatinine 0.9 mg/dl\n", "Referral\nPlease see the patient soon.\n")
    return {
        f"rec-{number:04d}": record(text=texts[number % len(texts)] + f"Page {number}\n") for number in range(count)
    }
