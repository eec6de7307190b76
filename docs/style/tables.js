// Wide tables scroll on their own: keys must reach them too.
document$.subscribe(() => setTimeout(() => document.querySelectorAll(".md-typeset__scrollwrap").forEach(table => { table.tabIndex = 0 })))
