"""The documentation as a site: `make site`, into build/site. Every warning is an error there.

MyST reads the pages as GitHub does; a link to a page or heading that is not there is a
warning. Whether a link to another site leads anywhere is not asked: that would need the network.
"""

from importlib import metadata

project = "reservation-expiry"
release = version = metadata.version("reservation-expiry")
project_copyright = "the authors of reservation-expiry, MIT License"

extensions = ["myst_parser", "docs.made_from_code"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 3  # so that links to headings are checked, too
nitpicky = True
highlight_language = "none"  # pictures and sessions are no Python

html_theme = "furo"
html_title = f"{project} {release}"
html_theme_options = {"light_css_variables": {"code-font-size": "78%"}}  # 92 letters fit
html_copy_source = False
smartquotes = False  # two hyphens of an option stay two
