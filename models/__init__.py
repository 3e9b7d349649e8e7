"""Models by name; each module is imported when it is needed.

Those that ship, the harness's own probes, and users' own are found alike.
"""

from shootout.core.exported.request import model_names as names
from shootout.models.base import get

__all__ = ["get", "names"]
