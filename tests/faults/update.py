"""`python -m tests.faults.update` writes docs/faults.md."""

from tests.faults.table import ROOT, document, summary

if __name__ == "__main__":
    (ROOT / "docs" / "faults.md").write_text(document())
    print(summary())
