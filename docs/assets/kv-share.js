/* Sharing: every page has one box with link, Markdown, BibTeX, embed code, print and "report this number"; every chart
   can be saved as PNG, SVG and CSV and embedded, every table as CSV and Markdown. Texts are made when they are asked for, so they hold
   what the page shows and its state. */
(function () {
  "use strict";
  const { $, $$, make, copy, draw, save, address } = kvreport;

  const meta = (name) => $(`meta[name="${name}"]`)?.content || "";
  const release = () => meta("kv-release");
  const plain = (node) => (node?.textContent || "").replace(/\s+/g, " ").trim();

  /* What the page says now: its answer if it has one, else its first sentence. */
  function conclusion() {
    const title = plain($("main h1")).replace(/¶$/, "").trim();
    const said = [".kv-answer .kv-big", ".kv-big", ".kv-lead", ".kv-sized .kv-said", ".kv-said"]
      .map((mark) => $(`main ${mark}`)).find((node) => node && plain(node) && node.offsetParent);
    const text = said ? plain(said) : meta("description");
    return { title, text: text.includes(title) || /^$|\?$/.test(title) ? text : `${title}: ${text}` };
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
      const card = other ? null : kvreport.placed($('meta[property="og:image"]')?.content || "");
      if (model && gpu && !other) {
        const [page, here] = [address(), location.href].map((one) => one.split(/[?#]/)[0]);
        const root = page.slice(0, page.length - here.length + home().href.length);
        const card = `${root}embed/?model=${encodeURIComponent(model)}&gpu=${encodeURIComponent(gpu)}`;
        return `<iframe src="${card}" title="kvreport" width="420" height="300" loading="lazy"></iframe>`;
      }
      const text = conclusion().text.replace(/&/g, "&amp;").replace(/"/g, "&quot;").replace(/</g, "&lt;");
      const inner = card ? `<img src="${card}" alt="${text}" width="600">` : text;
      return `<a href="${address().replace(/&/g, "&amp;")}">${inner}</a>`;
    },
    report: () => reported().get("body"),
  };
  const LABELS = {
    link: "Link",
    markdown: "Markdown",
    bibtex: "BibTeX",
    embed: "Embed (HTML)",
    report: "Report a wrong number",
  };

  /** @type {() => HTMLScriptElement} */
  const script = () => document.querySelector('script[src*="assets/kvreport.js"]');
  const home = () => new URL("../", script().src);

  function box() {
    const body = make("div", { class: "kv-share-body" });
    const details = make(
      "details",
      { class: "kv-share kv-tools" },
      make("summary", {}, "Share, cite, print · Report a wrong number"),
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
    const link = $("a[data-kv-reports]", body);
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
    const report = meta("kv-issues")
      ? make(
        "a",
        { class: "kv-button", href: reportAddress(), rel: "noopener", "data-kv-reports": "" },
        "Report a wrong number",
      )
      : make(
        "p",
        { class: "kv-note", "data-kv-report": "" },
        "Press Copy next to the report above, or ",
        make("a", { href: reportAddress(), "data-kv-reports": "" }, "open it as an email"),
        ", and add the number that you expect and its source. This site has no address for reports, so send the text to whoever published the site or sent you the link. ",
        make("a", { href: new URL("log/", home()).href }, "With a start-up log, check each number first."),
      );
    // The way to report stands under the text of the report.
    body.replaceChildren(...rows, report, make("p", {}, print));
  }

  function reported() {
    const { title, text } = conclusion();
    return new URLSearchParams({
      title: `Wrong number: ${title}`,
      body:
        `Page: ${address()}\nData release: ${release()}\nThe page says: ${text}\n\nExpected instead, with the source:\n`,
    });
  }

  /* Where a report goes: the site's address for issues, else a message whose reader the sender chooses. */
  function reportAddress() {
    if (meta("kv-issues")) return `${meta("kv-issues")}?${reported()}`;
    const [subject, body] = ["title", "body"].map((name) => encodeURIComponent(reported().get(name)));
    return `mailto:?subject=${subject}&body=${body}`;
  }

  /* --- saving -------------------------------------------------------------------------------------- */

  const fileName = (suffix) =>
    `kvreport-${
      (location.pathname.split("/").filter(Boolean).pop() || "home").toLowerCase()
    }-${release()}.${suffix}`;

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
    "stroke-linecap",
    "paint-order",
    "opacity",
    "font-size",
    "font-family",
    "font-weight",
    "text-anchor",
    "display",
    "r",
  ];

  /* What a drawing shows, in a sentence: of the page's own answer, or of the drawing. */
  function finding(figure) {
    if (figure.matches(".kv-boundary, .kv-barfigure")) return conclusion().text;
    const told = plain($(".kv-finding", figure));
    if (told) return told;
    const named = $("[role=img]", figure)?.getAttribute("aria-label") || plain($("svg > title", figure));
    return named || plain($("figcaption", figure));
  }

  /* A text in lines of so many characters. */
  const lines = (text, length) =>
    text.split(" ").flatMap((word) => word.match(new RegExp(`.{1,${Math.floor(length)}}`, "g")) || []).reduce(
      (made, word) => {
        const joined = `${made.at(-1)} ${word}`;
        return joined.length > length ? [...made, word] : [...made.slice(0, -1), joined];
      },
      [""],
    ).map((line) => line.trim()).filter(Boolean);

  const MARGIN = 8;

  /* What a reader sees of a drawing, in its own units and in pixels: letters may stand outside its frame. */
  function shownPart(svg) {
    const frame = svg.viewBox.baseVal, own = svg.getBBox(), scale = svg.getScreenCTM();
    const ends = (from, size) => Math.max(frame[from] + frame[size], own[from] + own[size]);
    const [left, top] = [Math.min(frame.x, own.x), Math.min(frame.y, own.y)];
    const [across, down] = [ends("x", "width") - left, ends("y", "height") - top];
    return {
      viewBox: `${left} ${top} ${across} ${down}`,
      width: across * scale.a,
      height: down * scale.d,
    };
  }

  /* A copy of a drawing with its styles written into it; its letters take the width that they have on the page, in whichever font. */
  function styled(svg) {
    const copied = svg.cloneNode(true), shown = [svg, ...$$("*", svg)];
    [copied, ...$$("*", copied)].forEach((node, n) => {
      const style = getComputedStyle(shown[n]), moved = style.translate.match(/-?[\d.]+px/g);
      for (const name of STYLES) {
        if (style.getPropertyValue(name)) node.setAttribute(name, style.getPropertyValue(name));
      }
      if (moved && n) {
        const [right, down = 0] = moved.map(parseFloat);
        node.setAttribute(
          "transform",
          `translate(${right},${down}) ${node.getAttribute("transform") || ""}`.trim(),
        );
      }
      const wide = node.localName === "text" && shown[n].getComputedTextLength();
      if (wide) {
        node.setAttribute("textLength", String(wide));
        node.setAttribute("lengthAdjust", "spacingAndGlyphs");
      }
      node.removeAttribute("class");
    });
    return copied;
  }

  /* A drawing in a frame: what it shows above, its source and data release below. */
  function drawing(figure) {
    const svg = chartOf(figure), part = shownPart(svg), width = part.width + 2 * MARGIN;
    const copied = styled(svg);
    const ink = getComputedStyle(svg).color, font = { fill: ink, "font-family": "sans-serif" };
    let y = 8;
    const written = (size, weight, ...texts) =>
      texts.map((text) =>
        draw(
          "text",
          { ...font, x: MARGIN, y: y += 1.4 * size, "font-size": size, "font-weight": weight },
          ...text,
        )
      );
    const head = written(15, 600, ...lines(finding(figure), width / 10.2).map((line) => [line]));
    const placed = { ...part, x: MARGIN, y: y += 12, overflow: "visible" };
    for (const [key, value] of Object.entries(placed)) copied.setAttribute(key, String(value));
    y += part.height;
    const legend = [];
    let x = width;
    for (const item of $$(".kv-legend li, .kv-key", figure)) {
      const drawn = $("svg", item), sample = $("i", item), wide = drawn?.getBoundingClientRect().width || 18;
      const name = plain(item), across = wide + 22 + 6.6 * name.length;
      if (x > MARGIN && x + across > width) [x, y] = [MARGIN, y + 18];
      if (drawn) {
        const { height } = drawn.getBoundingClientRect(), copied = styled(drawn);
        for (const [key, value] of Object.entries({ x, y: y - 4 - height / 2, width: wide, height })) {
          copied.setAttribute(key, String(value));
        }
        legend.push(copied);
      } else if (sample) {
        const fill = getComputedStyle(sample).backgroundColor;
        legend.push(draw("rect", { x, y: y - 9, width: 18, height: 10, fill }));
      }
      const said = lines(name, (width - wide - 24) / 6.6);
      said.forEach((line, n) => {
        legend.push(draw("text", { ...font, x: x + wide + 8, y: n ? y += 16 : y, "font-size": 12 }, line));
      });
      x = said.length > 1 ? width : x + across;
    }
    const note = plain($("figcaption", figure));
    if (note && note !== finding(figure)) {
      legend.push(...written(11, 400, ...lines(note, width / 6.6).map((line) => [line])));
    }
    const source = `Source: kvreport, data release ${release()}, ${address()}`;
    const foot = written(11, 400, ...lines(source, width / 6.6).map((line) => [line]));
    const paper = draw("rect", {
      width,
      height: y + 10,
      fill: getComputedStyle(document.body).backgroundColor,
    });
    const framed = draw(
      "svg",
      { viewBox: `0 0 ${width} ${y + 10}`, width, height: y + 10 },
      paper,
      ...head,
      copied,
      ...legend,
      ...foot,
    );
    return { text: new XMLSerializer().serializeToString(framed), width, height: y + 10 };
  }

  /* The drawing of a figure; what stands beside it in a legend is small. */
  const chartOf = (figure) => $$("svg", figure).find((svg) => svg.clientWidth > 200);

  const asImage = (text) => `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;

  /* A drawing for another page, as it stands, at any width and without anything to fetch. */
  function frame(figure) {
    const quote = (text) => text.replace(/&/g, "&amp;").replace(/"/g, "&quot;").replace(/</g, "&lt;");
    const image = `<img src="${asImage(drawing(figure).text)}" alt="${
      quote(finding(figure))
    }" style="width: 100%">`;
    return `<a href="${quote(address())}">${image}</a>`;
  }

  async function png(figure) {
    const { text, width, height } = drawing(figure);
    const image = new Image();
    image.src = asImage(text);
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
      if (figure.dataset.kvTools || !chartOf(figure)) continue;
      figure.dataset.kvTools = "true";
      const table = $("details table", figure), svg = "image/svg+xml";
      figure.append(
        make(
          "p",
          { class: "kv-tools" },
          tool("PNG", "Save this chart as PNG", () => png(figure)),
          tool("SVG", "Save this chart as SVG", () => save(drawing(figure).text, svg, fileName("svg"))),
          table &&
            tool("CSV", "Save this chart's data as CSV", () => save(csv(table), "text/csv", fileName("csv"))),
          tool(
            "Embed",
            "Embed: copy this chart as HTML for another page",
            (button) => copy(frame(figure), button),
          ),
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
    let timer = 0, /** @type {MutationObserver | null} */ watch = null;
    const later = () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        watch?.disconnect(); // what is added here is no news
        tools(main);
        for (const body of $$(".kv-share[open] > .kv-share-body", main)) refresh(body);
        watch?.observe(main, { childList: true, subtree: true });
      }, 250);
    };
    later();
    main.addEventListener("change", later); // may write the address alone
    watch = new MutationObserver(later);
    return {
      release: () => {
        clearTimeout(timer);
        watch?.disconnect();
        main.removeEventListener("change", later);
      },
    };
  };
})();
