/* Sharing: every page has one box with link, Markdown, BibTeX, embed code, print and "report this number"; every chart
   can be saved as SVG, PNG and CSV, every table as CSV and Markdown. Texts are made when they are asked for, so they hold
   what the page shows and its state. */
(function () {
  "use strict";
  const { $, $$, make, copy } = kvreport;

  const meta = (name) => $(`meta[name="${name}"]`)?.content || "";
  const release = () => meta("kv-release");
  const plain = (node) => (node?.textContent || "").replace(/\s+/g, " ").trim();

  /* The address to cite: the published one where the build knows it, with the state that is shown. */
  function address() {
    const told = $('link[rel="canonical"]')?.href || "";
    const base = told.startsWith("https://") ? told : location.href.split(/[?#]/)[0];
    return base + location.search + location.hash;
  }

  /* What the page says now: its answer if it has one, else its first sentence. */
  function conclusion() {
    const title = plain($("main h1")).replace(/¶$/, "").trim();
    const said = [".kv-answer .kv-big", ".kv-big", ".kv-lead", ".kv-sized .kv-said", ".kv-said"]
      .map((mark) => $(`main ${mark}`)).find((node) => node && plain(node) && node.offsetParent);
    const text = said ? plain(said) : meta("description");
    return { title, text: text.includes(title) || !title ? text : `${title}: ${text}` };
  }

  const forms = {
    link: () => address(),
    markdown: () =>
      `[${conclusion().text.replace(/[[\]]/g, "\\$&")}](${address()}) (kvreport, data release ${release()})`,
    bibtex: () => {
      const { title, text } = conclusion();
      const escape = (part) => part.replace(/([&%$#_{}])/g, "\\$1");
      const key = (location.pathname.split("/").filter(Boolean).pop() || "home").toLowerCase().replace(
        /[^a-z0-9]+/g,
        "-",
      );
      return [
        `@misc{kvreport-${key}-${release()},`,
        `  title = {${escape(title || "kvreport")}},`,
        "  author = {{The kvreport authors}},",
        `  year = {${release().slice(0, 4)}},`,
        `  url = {${address()}},`,
        `  note = {${escape(text)} Data release ${release()}, accessed ${
          new Date().toISOString().slice(0, 10)
        }}`,
        "}",
      ].join("\n");
    },
    embed: () => {
      const asked = new URLSearchParams(location.search);
      const model = /\/models\/([^/]+)\/$/.exec(location.pathname)?.[1] || asked.get("model");
      const gpu = /\/gpus\/([^/]+)\/$/.exec(location.pathname)?.[1] || asked.get("gpu");
      // Card and picture have the answer of the defaults; of another one, what the page says is embedded.
      const other = [...asked].some(([key, value]) =>
        !["model", "gpu", "unit", "h"].includes(key) && value !== "fewest"
      );
      const card = other ? null : $('meta[property="og:image"]')?.content;
      if (model && gpu && !other) {
        const page = new URL(
          `embed/?model=${encodeURIComponent(model)}&gpu=${encodeURIComponent(gpu)}`,
          home(),
        );
        return `<iframe src="${page}" title="kvreport" width="360" height="120" loading="lazy"></iframe>`;
      }
      const text = conclusion().text.replace(/&/g, "&amp;").replace(/"/g, "&quot;").replace(/</g, "&lt;");
      const inner = card ? `<img src="${card}" alt="${text}" width="600">` : text;
      return `<a href="${address().replace(/&/g, "&amp;")}">${inner}</a>`;
    },
  };
  const LABELS = { link: "Link", markdown: "Markdown", bibtex: "BibTeX", embed: "Embed (HTML)" };

  /** @type {() => HTMLScriptElement} */
  const script = () => document.querySelector('script[src*="assets/kvreport.js"]');
  const home = () => new URL("../", script().src);

  function box() {
    const body = make("div", { class: "kv-share-body" });
    const details = make(
      "details",
      { class: "kv-share kv-tools" },
      make("summary", {}, "Share, cite, print"),
      body,
    );
    details.addEventListener("toggle", () => {
      if (details.open) fill(body);
    });
    return details;
  }

  const idOf = (name) => `kv-share-${name}`;

  function write(field, text) {
    if (field.value === text) return; // what a reader has selected stays so
    field.value = text;
    field.rows = Math.min(8, text.split("\n").length);
  }

  /* The page has another answer while the box is open: the texts and the report are of that one. */
  function refresh(body) {
    if (!body.firstChild) return; // just opened: it is filled a moment later, with the answer of then
    for (const [name, form] of Object.entries(forms)) write($(`#${idOf(name)}`, body), form());
    const link = $("a.kv-button", body);
    if (link) link.href = reportAddress();
  }

  function fill(body) {
    const rows = Object.entries(forms).map(([name, form]) => {
      const id = idOf(name), text = form();
      const field = make("textarea", { id, readonly: true, spellcheck: "false" });
      write(field, text);
      field.addEventListener("focus", () => field.select());
      const button = make("button", {
        type: "button",
        class: "kv-chip",
        "aria-label": `Copy ${LABELS[name]}`,
      }, "Copy");
      button.addEventListener("click", () => copy(field.value, button));
      return make("div", { class: "kv-share-row" }, make("label", { for: id }, LABELS[name]), field, button);
    });
    const print = make("button", { type: "button", class: "kv-button" }, "Print this page");
    print.addEventListener("click", () => globalThis.print());
    const report = meta("kv-issues") &&
      make("a", { class: "kv-button", href: reportAddress(), rel: "noopener" }, "Report this number");
    body.replaceChildren(...rows, make("p", {}, print, " ", report || null));
  }

  function reported() {
    const { title, text } = conclusion();
    return new URLSearchParams({
      title: `Wrong number: ${title}`,
      body:
        `Page: ${address()}\nData release: ${release()}\nThe page says: ${text}\n\nExpected instead, with the source:\n`,
    });
  }

  const reportAddress = () => `${meta("kv-issues")}?${reported()}`;

  /* --- saving -------------------------------------------------------------------------------------- */

  const fileName = (suffix) =>
    `kvreport-${
      (location.pathname.split("/").filter(Boolean).pop() || "home").toLowerCase()
    }-${release()}.${suffix}`;

  function save(content, type, name) {
    const url = URL.createObjectURL(new Blob([content], { type }));
    const link = make("a", { href: url, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }

  /* A table as rows of text. Numbers lose their thousands separators, cells that span are repeated as empty ones. */
  function rows(table) {
    return $$("tr", table).filter((row) =>
      !row.hidden && (row.closest(".kv-rest") || row.offsetParent !== null) || !table.offsetParent
    )
      .map((row) =>
        $$("th, td", row).flatMap((cell) => {
          const text = plain(cell);
          const value = /^-?\d[\d,]*(\.\d+)?$/.test(text) ? text.replace(/,/g, "") : text;
          return [value, ...Array(Math.max(0, (cell.colSpan || 1) - 1)).fill("")];
        })
      );
  }

  function csv(table) {
    const quote = (text) => (/[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
    const [head, ...body] = rows(table);
    return [[...head, "data_release", "source"], ...body.map((row) => [...row, release(), address()])]
      .map((row) => row.map(quote).join(",")).join("\n") + "\n";
  }

  function asMarkdown(table) {
    const [head, ...body] = rows(table).map((row) => row.map((text) => text.replace(/\|/g, "\\|")));
    const line = (row) => `| ${row.join(" | ")} |`;
    const source = `[kvreport](${address()}), data release ${release()}`;
    return [line(head), line(head.map(() => "---")), ...body.map(line), "", source].join("\n") + "\n";
  }

  const STYLES = [
    "fill",
    "stroke",
    "stroke-width",
    "stroke-dasharray",
    "opacity",
    "font-size",
    "font-family",
    "font-weight",
    "text-anchor",
  ];

  /* A drawing with its styles written into it and a line that names its source. */
  function drawing(svg) {
    const place = svg.viewBox.baseVal,
      width = place?.width || svg.clientWidth,
      height = place?.height || svg.clientHeight;
    const copied = svg.cloneNode(true);
    const shown = [svg, ...$$("*", svg)], to = [copied, ...$$("*", copied)];
    shown.forEach((node, n) => {
      const style = getComputedStyle(node);
      for (const name of STYLES) {
        if (style.getPropertyValue(name)) to[n].setAttribute(name, style.getPropertyValue(name));
      }
      to[n].removeAttribute("class");
    });
    const paper = getComputedStyle(document.body).backgroundColor;
    const node = (name, attributes, text = "") => {
      const made = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
      made.textContent = text;
      return made;
    };
    const legend = $$(".kv-legend li", svg.closest(".kv-figure") || document.createElement("p")).map(
      (item) => {
        const sample = $("line, path", item), style = sample && getComputedStyle(sample);
        const color = style && style.stroke !== "none" ? style.stroke : style?.fill;
        return node("tspan", { fill: color || "gray" }, `■ ${plain(item)}   `);
      },
    );
    const [x, y, foot] = [place?.x || 0, place?.y || 0, legend.length ? 62 : 44];
    const ink = getComputedStyle(svg).color;
    const line = { x: x + 8, fill: ink, "font-family": "sans-serif" };
    copied.setAttribute("viewBox", `${x} ${y} ${width} ${height + foot}`);
    copied.setAttribute("width", String(width));
    copied.setAttribute("height", String(height + foot));
    copied.prepend(node("rect", { x, y, width, height: height + foot, fill: paper }));
    if (legend.length) {
      const names = node("text", { ...line, y: y + height + 16, "font-size": 10 });
      names.append(...legend);
      copied.append(names);
    }
    copied.append(
      node(
        "text",
        { ...line, y: y + height + foot - 26, "font-size": 12 },
        plain($("main h1")).replace(/¶$/, ""),
      ),
      node(
        "text",
        { ...line, y: y + height + 34, "font-size": 10 },
        `kvreport, data release ${release()}, ${address()}`,
      ),
    );
    return { text: new XMLSerializer().serializeToString(copied), width, height: height + foot };
  }

  async function png(svg) {
    const { text, width, height } = drawing(svg);
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    await image.decode();
    const canvas = make("canvas", { width: 2 * width, height: 2 * height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(blob, "image/png", fileName("png")), "image/png");
  }

  function tool(label, title, act) {
    const button = make("button", { type: "button", class: "kv-tool", "aria-label": title }, label);
    button.addEventListener("click", () => act(button));
    return button;
  }

  function tools(root) {
    for (const figure of $$(".kv-figure", root)) {
      if (figure.dataset.kvTools || !$(".kv-chart", figure)) continue;
      figure.dataset.kvTools = "true";
      const svg = () => $(".kv-chart svg", figure), table = $("details table", figure);
      figure.append(
        make(
          "p",
          { class: "kv-tools" },
          tool("PNG", "Save this chart as PNG", () => png(svg())),
          tool(
            "SVG",
            "Save this chart as SVG",
            () => save(drawing(svg()).text, "image/svg+xml", fileName("svg")),
          ),
          table &&
            tool("CSV", "Save this chart's data as CSV", () => save(csv(table), "text/csv", fileName("csv"))),
        ),
      );
    }
    for (const scroll of $$(".kv-scroll", root)) {
      if (scroll.dataset.kvTools || scroll.closest(".kv-figure, .kv-nojs") || $$("tr", scroll).length < 3) {
        continue;
      }
      scroll.dataset.kvTools = "true";
      const table = () => $("table", scroll);
      scroll.after(
        make(
          "p",
          { class: "kv-tools" },
          scroll.dataset.kvOwnCsv === undefined
            ? tool("CSV", "Save this table as CSV", () => save(csv(table()), "text/csv", fileName("csv")))
            : null,
          tool(
            "Copy as Markdown",
            "Copy as Markdown: this table",
            (button) => copy(asMarkdown(table()), button),
          ),
        ),
      );
    }
  }

  kvreport.share = (main) => {
    if (!release()) return null;
    $(".kv-share-place:empty", main)?.append(box());
    let timer = 0;
    const later = () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        watch.disconnect(); // what is added here is no news
        tools(main);
        for (const body of $$(".kv-share[open] > .kv-share-body", main)) refresh(body);
        watch.observe(main, { childList: true, subtree: true });
      }, 250);
    };
    const watch = new MutationObserver(later);
    later();
    main.addEventListener("change", later); // may write the address alone
    return {
      release: () => {
        clearTimeout(timer);
        watch.disconnect();
        main.removeEventListener("change", later);
      },
    };
  };
})();
