/* Instruments of the chapters: sliders, and numbers that follow. The description stands in the page, the
   arithmetic is kvLessons, translated from Python; this file only moves and shows. */
(function () {
  "use strict";
  const { count, draw, fixed, $, make, tokens } = kvreport;
  const SCALES = { GiB: 2 ** 30, GB: 1e9, MiB: 2 ** 20, KiB: 2 ** 10, ms: 1e-3, "%": 0.01 };

  /* As kvreport.book.instruments.shown. */
  function shown(value, form) {
    if (form.startsWith("words:")) return form.slice(6).split("|")[value];
    if (form === "tokens") return tokens(Math.floor(value));
    if (form === "count") return count(Math.floor(value));
    const [unit, digits = "0"] = form.split(".");
    const number = fixed(value / (SCALES[unit] || 1), Number(digits));
    return unit === "%" || unit === "×" ? number + unit : `${number} ${unit}`;
  }

  function instrument(root) {
    if (root.dataset.kvReady) return null;
    root.dataset.kvReady = "true";
    const name = root.dataset.kvInstrument;
    const spec = JSON.parse(root.dataset.spec);
    const panel = make("div", { class: "kv-panel" });
    const sliders = spec.sliders.map(([key, label, values, start, form], n) => {
      const id = `kv-${name}-${n}`;
      const output = make("output", { for: id, class: "kv-now" });
      const input = make("input", {
        type: "range",
        id,
        min: 0,
        max: values.length - 1,
        step: 1,
        value: start,
        class: "kv-range-input",
      });
      panel.append(make("div", { class: "kv-slider" }, make("label", { for: id }, label), input, output));
      return { key, values, form, input, output };
    });
    const told = spec.outputs.filter(([, label]) => label);
    const cells = told.map(() => make("dd", {}));
    const list = make("dl", { class: "kv-readings" });
    told.forEach(([, label], n) => list.append(make("div", {}, make("dt", {}, label), cells[n])));
    const said = make("p", { class: "kv-said", role: "status", "aria-live": "polite" });
    const picture = make("div", { class: "kv-gauge" });
    const goals = Array.from(root.querySelectorAll(".kv-goals > li"));
    let reached = 0;

    function bar(known) {
      if (!spec.bar.length) return;
      const value = (key) => (typeof key === "string" ? known[key] : key);
      const parts = spec.bar.map(([role, label, key]) => [role, label, Math.max(value(key), 0)]);
      const used = parts.reduce((sum, [, , size]) => sum + size, 0);
      const limit = spec.limit ? value(spec.limit) : used;
      const scale = 1000 / Math.max(used, limit, 1) / 1.02;
      const label = `${
        parts.map(([, words, size]) => `${words} ${shown(size, spec.barForm)}`).join(", ")
      }; ${spec.limitLabel} ${shown(limit, spec.barForm)}`;
      const svg = draw("svg", {
        viewBox: "0 0 1000 44",
        role: "img",
        "aria-label": label,
        class: "kv-gauge__svg",
      });
      let x = 0;
      for (const [role, , size] of parts) {
        svg.append(
          draw("rect", { x, y: 6, width: Math.max(size * scale, 0), height: 32, class: `kv-fill--${role}` }),
        );
        x += size * scale;
      }
      svg.append(draw("line", { x1: limit * scale, x2: limit * scale, y1: 0, y2: 44, class: "kv-limit" }));
      picture.replaceChildren(
        svg,
        make(
          "p",
          { class: "kv-gauge__keys" },
          ...parts.map(([role, words, size]) =>
            make("span", { class: `kv-gkey kv-gkey--${role}` }, `${words} ${shown(size, spec.barForm)}`)
          ),
          make(
            "span",
            { class: "kv-gkey kv-gkey--limit" },
            `${spec.limitLabel} ${shown(limit, spec.barForm)}`,
          ),
        ),
      );
    }

    function update(event) {
      const known = { ...spec.givens };
      for (const { key, values, form, input, output } of sliders) {
        known[key] = values[Number(input.value)];
        output.textContent = shown(known[key], form);
        input.setAttribute("aria-valuetext", output.textContent);
      }
      for (const [key, , call, given] of spec.outputs) {
        known[key] = kvLessons[call](...given.map((one) => (typeof one === "string" ? known[one] : one)));
      }
      told.forEach(([key, , , , form], n) => {
        cells[n].textContent = shown(known[key], form);
        const bad = form.startsWith("words:") && form.endsWith("out of memory") && known[key] === 1;
        cells[n].classList.toggle("kv-bad", bad);
      });
      bar(known);
      root.kvFound = known;
      if (!event) return;
      while (reached < spec.goals.length && known[spec.goals[reached][0]] === spec.goals[reached][1]) {
        goals[reached].classList.add("kv-done");
        reached += 1;
        said.textContent = reached === spec.goals.length
          ? "Every step is done."
          : `Step ${reached} is done. Next: ${goals[reached].textContent}`;
        if (reached < spec.goals.length && spec.goals[reached][0] === spec.goals[reached - 1][0]) break;
      }
    }

    const button = (words, act) => {
      const node = make("button", { type: "button", class: "md-button kv-lock" }, words);
      node.addEventListener("click", act);
      return node;
    };

    /* Nothing moves before the button is pressed; where a reader wants less motion, it moves one step. */
    function player(input) {
      let timer = 0;
      const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
      const last = Number(input.max);
      const node = button(still ? "Next step" : "Play", () => {
        if (timer) return pause();
        if (Number(input.value) === last) input.value = "0";
        else if (still) return step();
        if (still) return update(true);
        node.textContent = "Pause";
        timer = setInterval(step, 150);
        return null;
      });
      function pause() {
        clearInterval(timer);
        timer = 0;
        if (!still) node.textContent = "Play";
      }
      function step() {
        input.value = String(Number(input.value) + 1);
        update(true);
        if (Number(input.value) === last || !input.isConnected) pause();
      }
      input.addEventListener("input", pause);
      return node;
    }

    const tools = spec.presets.map(([words, places]) =>
      button(words, () => {
        sliders.forEach(({ input }, n) => {
          input.value = String(places[n]);
        });
        update(true);
      })
    );
    for (const { key, input } of sliders) if (key === spec.time) tools.push(player(input));
    if (tools.length) panel.prepend(make("p", { class: "kv-attempt" }, ...tools));
    sliders.forEach(({ input }) => input.addEventListener("input", update));
    panel.append(picture, list, said);
    $(".kv-instrument__table", root).before(panel);
    root.classList.add("kv-live");
    update();
    return null;
  }

  Object.assign(kvreport, { instrument });
})();
