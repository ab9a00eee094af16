"""What ruins studies, found before they start: leaks between splits, broken masks, lesions that a resize swallows.

>>> result = audit({"train": train, "test": test})
>>> print("\\n".join(finding.text for finding in result.errors))
"""

from __future__ import annotations

from laworder.data.audit.alignment import Alignment, align
from laworder.data.audit.autoencoder import Reconstruct, open_autoencoder
from laworder.data.audit.duplicates import Duplicates, Twin, find_duplicates
from laworder.data.audit.findings import Finding
from laworder.data.audit.fingerprints import Fingerprint, fingerprint
from laworder.data.audit.study import Audit, SplitAudit, audit

__all__ = [
    "Alignment",
    "Audit",
    "Duplicates",
    "Finding",
    "Fingerprint",
    "Reconstruct",
    "SplitAudit",
    "Twin",
    "align",
    "audit",
    "find_duplicates",
    "fingerprint",
    "open_autoencoder",
]
