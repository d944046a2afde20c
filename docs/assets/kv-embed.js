// The embeddable card: ?model=<slug>&gpu=<id>. Reads the model's badges, and writes text and a drawing, never HTML.
"use strict";
(async () => {
  const asked = new URLSearchParams(location.search);
  const model = asked.get("model") || "";
  const gpu = asked.get("gpu") || "";
  const main = document.querySelector("main");
  const say = (...parts) => main.replaceChildren(...parts);
  const make = (name, className, text) => {
    const element = document.createElement(name);
    element.className = className;
    element.textContent = text;
    return element;
  };
  const draw = (name, attributes, ...parts) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
    element.append(...parts);
    return element;
  };
  const short = (n) => n >= 1 << 20 ? `${n / 2 ** 20}M` : n >= 1024 ? `${n / 1024}K` : String(n);
  const state = (color) =>
    draw(
      "svg",
      { class: "kv-embed-state", width: 12, height: 12, viewBox: "0 0 12 12", "aria-hidden": "true" },
      draw("circle", { cx: 6, cy: 6, r: 6, fill: `#${color}` }),
    );

  /* Concurrent requests by context, both by powers of two, as the charts of the pages. */
  function chart(points, label) {
    const [left, right, top, bottom] = [42, 352, 8, 122];
    const high = Math.max(2, ...points.map(([, requests]) => requests)) * 1.25;
    const first = points[0][0], last = points[points.length - 1][0];
    const x = (context) => left + (right - left) * Math.log2(context / first) / Math.log2(last / first);
    const y = (requests) => bottom - (bottom - top) * Math.log2(requests) / Math.log2(high);
    const powers = (low, end, most) => {
      const step = Math.max(1, Math.ceil(Math.log2(end / low) / most)), found = [];
      for (let n = low; n <= end; n *= 2 ** step) found.push(n);
      return found;
    };
    const up = powers(1, high, 4), across = powers(first, last, 5);
    const grid = up.map((n) => `M${left} ${y(n)}H${right}`).concat(
      across.map((n) => `M${x(n)} ${top}V${bottom}`),
    );
    const text = (n, at) => draw("text", at, n);
    const at = points.filter(([context]) => context <= 8192).pop();
    return draw(
      "svg",
      { class: "kv-embed-chart", viewBox: "0 0 366 156", role: "img", "aria-label": label },
      draw("path", { class: "kv-embed-grid", d: grid.join("") }),
      ...up.map((n) => text(n.toLocaleString("en-US"), { x: left - 6, y: y(n) + 4, "text-anchor": "end" })),
      ...across.map((n) => text(short(n), { x: x(n), y: bottom + 16, "text-anchor": "middle" })),
      text("Concurrent requests by context (tokens)", {
        x: (left + right) / 2,
        y: 152,
        "text-anchor": "middle",
      }),
      draw("path", { class: "kv-embed-line", d: `M${points.map(([c, n]) => `${x(c)} ${y(n)}`).join("L")}` }),
      ...at ? [draw("circle", { class: "kv-embed-point", cx: x(at[0]), cy: y(at[1]), r: 4.5 })] : [],
    );
  }

  if (!location.search) return; /* the page says how a card is asked for */
  const unused = [...asked].filter(([key, value]) =>
    !(key === "model" && value === model) && !(key === "gpu" && value === gpu)
  );
  try {
    if (!/^[\w.-]+$/.test(model) || !/^[\w.-]+$/.test(gpu)) throw new Error("missing");
    const base = new URL(main.dataset.kvEmbed, location.href);
    const response = await fetch(new URL(`${model}.json`, base));
    if (!response.ok) throw new Error("missing");
    const found = await response.json();
    const badge = Object.hasOwn(found.gpus, gpu) ? found.gpus[gpu] : null;
    if (!badge) throw new Error("missing");
    const link = make("a", "kv-embed-link", badge.label);
    link.href = new URL(`../models/${model}/`, base).href;
    link.target = "_blank";
    link.rel = "noopener";
    const points = badge.requests.map((requests, n) => [found.contexts[n], requests]);
    const answer = make("h1", "kv-embed-message", badge.message);
    if (/^[0-9a-f]{6}$/.test(badge.color)) answer.prepend(state(badge.color));
    say(
      link,
      answer,
      ...(points.length > 1 ? [chart(points, `${badge.label}: concurrent requests by context`)] : []),
      make("p", "kv-embed-note", `kvreport: from formulas, data release ${found.release}.`),
      ...(unused.length
        ? [make("p", "kv-embed-note", `Not used: ${unused.map((pair) => pair.join("=")).join(", ")}.`)]
        : []),
    );
  } catch {
    const help = make("a", "kv-embed-link", "How to ask for a card");
    help.href = location.pathname;
    help.target = "_blank";
    help.rel = "noopener";
    say(make("p", "kv-embed-note", "No such model or GPU."), help);
  }
})();
