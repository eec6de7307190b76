// What keys and screen readers reach.
document$.subscribe(() => setTimeout(() => {
  // Wide tables scroll on their own: keys must reach them too.
  document.querySelectorAll(".md-typeset__scrollwrap").forEach(table => { table.tabIndex = 0 })
  // The buttons above code are no place to go to.
  document.querySelectorAll("nav.md-code__nav").forEach(buttons => buttons.setAttribute("role", "none"))
  // A section that has a page of its own is named by the link to it: its label is but an arrow.
  document.querySelectorAll("nav[aria-labelledby]").forEach(section => {
    const label = document.getElementById(section.getAttribute("aria-labelledby"))
    if (label && !label.textContent.trim()) {
      section.setAttribute("aria-label", label.parentElement.textContent.trim())
      section.removeAttribute("aria-labelledby")
    }
  })
}))
