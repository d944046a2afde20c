/* Parts that answers are made of, for the pages that show them: memory bars, small tables, commands, lists of facts. */
(function () {
  "use strict";

  const { copy, draw, gib, make } = kvreport;

  /* A command whose lines break at spaces alone: what has a hyphen is kept together. */
  const unbroken = (text) =>
    text.split(/(\S*-\S*)/).map((one, place) => place % 2 ? make("span", { class: "kv-word" }, one) : one);

  /* Where one device's memory goes: [role, words, bytes] of each part, to scale of `total`. */
  function memoryBar(title, parts, total, caption) {
    const drawn = parts.filter(([, , bytes]) => bytes > 0);
    const size = (bytes) => `${gib(bytes, 1)} GiB`;
    const label = `${title}: ${drawn.map(([, words, bytes]) => `${words} ${size(bytes)}`).join(", ")}`;
    const bar = draw("svg", {
      class: "kv-bar",
      viewBox: "0 0 1000 40",
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": label,
    });
    let x = 0;
    for (const [role, words, bytes] of drawn) {
      const width = 1000 * bytes / total;
      const rect = draw("rect", { class: `kv-fill-${role}`, x, y: 0, width, height: 40 });
      rect.append(draw("title", {}, `${words}: ${size(bytes)}`));
      bar.append(rect);
      x += width;
    }
    const legend = drawn.map(([role, words, bytes]) =>
      make("li", {}, make("i", { class: `kv-swatch kv-${role}` }), `${words} `, make("b", {}, size(bytes)))
    );
    return make(
      "figure",
      { class: "kv-figure kv-barfigure" },
      bar,
      make("ul", { class: "kv-legend" }, ...legend),
      make("figcaption", {}, caption),
    );
  }

  /* A table in its scroller. A head or a cell is a text, a node, a list of them, or a cell that is already made; the first
     of a row names it. numeric: which columns hold numbers; label: what the scroller is called. */
  function grid(caption, heads, rows, { css = "", label = caption, numeric = (n) => n > 0 } = {}) {
    const cell = (tag, scope) => (given, n) =>
      given instanceof HTMLTableCellElement ? given : make(
        n ? tag : "th",
        { scope: n ? scope : scope || "row", class: numeric(n) && "kv-num" },
        ...[given].flat(),
      );
    const line = (row) => row instanceof Element ? row : make("tr", {}, ...row.map(cell("td", false)));
    return make(
      "div",
      { class: "kv-scroll kv-scroll--open", role: "region", "aria-label": label },
      make(
        "table",
        { class: `kv-table ${css}`.trim() },
        caption && make("caption", {}, ...[caption].flat()),
        make("thead", {}, make("tr", {}, ...heads.map(cell("th", "col")))),
        make("tbody", {}, ...rows.map(line)),
      ),
    );
  }

  /* A command, or another text to take away, with the button that copies it. */
  function command(text, what = "command") {
    const button = make("button", { type: "button", class: "kv-chip" }, `Copy ${what}`);
    button.addEventListener("click", () => copy(text, button));
    return make(
      "div",
      { class: "highlight kv-command" },
      make("pre", {}, make("code", {}, ...unbroken(text))),
      button,
    );
  }

  /* Names with what belongs to each. */
  const definitions = (css, pairs) =>
    make(
      "dl",
      { class: css },
      ...pairs.map(([name, ...told]) => make("div", {}, make("dt", {}, name), make("dd", {}, ...told))),
    );

  Object.assign(kvreport, { memoryBar, grid, command, definitions });
})();
