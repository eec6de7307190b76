// What the page does without asking the server: go where a link says, light what belongs together, follow the colour scheme.
(function () {
  "use strict";
  // The address is the state: a link inside the explorer changes it without loading the page anew.
  function go(href) {
    const to = new URL(href, window.location.href);
    if (to.origin !== window.location.origin) return;
    const elsewhere = to.pathname !== window.location.pathname;
    window.history.pushState({}, "", to.pathname + to.search);
    window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
    if (elsewhere) {
      window.scrollTo(0, 0);
      const main = document.getElementById("main");
      if (main) main.focus({ preventScroll: true });
    }
  }

  document.addEventListener("click", function (event) {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target.closest && event.target.closest("a[href]");
    const href = link && link.getAttribute("href");
    if (!href || !href.startsWith("/") || link.hasAttribute("download") || link.target) return;
    event.preventDefault();
    again = event.detail === 0 && link.closest("#main") ? named(link) : null;
    go(href);
  });

  // By keyboard: a link or slider that is there again on the page that it has changed keeps the focus.
  let again = null;
  const named = (one) => one.getAttribute("aria-label") || one.textContent;
  document.addEventListener("keydown", function (event) { again = event.target.matches("[role=slider]") ? named(event.target) : null; }, true);
  function refocus() {
    if (again === null || document.activeElement !== document.body) return;
    const same = Array.from(document.querySelectorAll("#main :is(a[href], [role=slider])")).find((one) => named(one) === again);
    if (same) same.focus({ preventScroll: true });
  }

  // Elements with the same word in data-lit are lit together, by pointer and by keyboard.
  let lit = [];
  function light(event) {
    lit.forEach((one) => one.classList.remove("lit"));
    lit = [];
    const from = event.target.closest && event.target.closest("[data-lit]");
    if (!from || event.type === "mouseout" || event.type === "focusout") return;
    const word = from.getAttribute("data-lit");
    lit = Array.from(document.querySelectorAll("[data-lit]")).filter((one) => one.getAttribute("data-lit") === word);
    lit.forEach((one) => one.classList.add("lit"));
  }
  ["mouseover", "mouseout", "focusin", "focusout"].forEach((name) => document.addEventListener(name, light));

  // Parts that stay as they are come as markup (parts/still.py). Where one takes another's place, what has the focus, what is
  // opened and how far it is scrolled stay, as far as the same is there again.
  const KEPT = "a[href], summary, [tabindex]";
  function put(place) {
    const before = Array.from(place.querySelectorAll(KEPT)), focused = document.activeElement;
    const kept = before.map((one) => [one.textContent, one.scrollTop, one.scrollLeft, one.parentElement.open]);
    place.innerHTML = place.getAttribute("data-html") || "";
    place.querySelectorAll(KEPT).forEach(function (one, at) {
      const same = kept[at] && kept[at][0] === one.textContent;
      if (same && one.tagName === "SUMMARY") one.parentElement.open = kept[at][3];
      if (same && before[at] === focused) one.focus({ preventScroll: true });
      if (kept[at]) [one.scrollTop, one.scrollLeft] = [kept[at][1], kept[at][2]];
    });
  }
  new MutationObserver(function (changes) {
    const places = new Set();
    changes.forEach(function (change) {
      if (change.type === "attributes") places.add(change.target);
      else change.addedNodes.forEach(function (node) {
        if (!node.querySelectorAll) return;
        if (node.matches("article.still")) places.add(node);
        node.querySelectorAll("article.still").forEach((one) => places.add(one));
      });
    });
    places.forEach(put);
    if (places.size) refocus();
  }).observe(document.documentElement, { childList: true, subtree: true, attributes: true, attributeFilter: ["data-html"] });

  // Grids have their own switch for dark colours.
  function follow() {
    const scheme = document.documentElement.getAttribute("data-mantine-color-scheme");
    document.documentElement.setAttribute("data-ag-theme-mode", scheme === "dark" ? "dark" : "light");
  }
  new MutationObserver(follow).observe(document.documentElement, { attributes: true, attributeFilter: ["data-mantine-color-scheme"] });
  follow();

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    explorer: {
      point: function (clicks) {
        const from = window.dash_clientside.callback_context.triggered[0];
        const point = from && from.value && from.value.points && from.value.points[0];
        const href = point && (Array.isArray(point.customdata) ? point.customdata[0] : point.customdata);
        if (typeof href === "string" && href.startsWith("/")) go(href);
      },
      node: function () {
        const from = window.dash_clientside.callback_context.triggered[0];
        const href = from && from.value && from.value.href;
        if (typeof href === "string" && href.startsWith("/")) go(href);
      },
      window: function (change) {
        // A window of the timeline is a part of the address, so that it can be shared, and is drawn anew in its own detail.
        if (!change) return;
        const low = change["xaxis.range[0]"], high = change["xaxis.range[1]"];
        const to = new URL(window.location.href);
        if (change["xaxis.autorange"]) to.searchParams.delete("zoom");
        else if (typeof low === "number" && high > Math.max(low, 0)) to.searchParams.set("zoom", Math.max(low, 0).toPrecision(6) + "-" + high.toPrecision(6));
        else return;
        if (to.search !== window.location.search) go(to.pathname + to.search);
      },
      title: function (pathname) {
        const here = document.querySelector("nav.walk a[aria-current] .word");
        document.title = (here ? here.textContent + " · " : "") + "tokenwire";
        return window.dash_clientside.no_update;
      },
      menu: function (clicks, pathname) {
        // The menu closes on a phone when a page is chosen.
        const opened = window.dash_clientside.callback_context.triggered_id === "menu" && Boolean(clicks);
        return [opened, { width: 210, breakpoint: "sm", collapsed: { mobile: !opened } }];
      },
    },
  });

  const components = (window.dashAgGridComponentFunctions = window.dashAgGridComponentFunctions || {});
  components.Selecting = function (props) {
    if (props.value === null || props.value === undefined) return "";
    const text = props.data[props.colDef.field + "·"];
    return window.React.createElement("a", { href: props.base + encodeURIComponent(props.value) }, text);
  };
  const functions = (window.dashAgGridFunctions = window.dashAgGridFunctions || {});
  functions.shownText = function (params) {
    return params.data ? params.data[params.colDef.field + "·"] : params.value;
  };
})();
