// The embeddable card: ?model=<slug>&gpu=<id>. Reads the model's badges and writes text, never HTML.
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
    say(
      link,
      make("h1", "kv-embed-message", badge.message),
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
