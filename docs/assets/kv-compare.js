/* Two to four models, or two to four accelerators, on one boundary chart and in one table. */
(function () {
  "use strict";

  const {
    $,
    make,
    count,
    tokens,
    roughTokens,
    gib,
    load,
    script,
    usersCell,
    readState,
    writeState,
    ignoredNote,
    enliven,
    units,
  } = kvreport;
  const MOST = 4;

  function compare(root) {
    let site, models, state = {}, ignored = [], view = null, turn = 0;

    const known = new Map();

    load(root.dataset.kvCompare).then((data) => {
      site = data;
      models = site.models.map(([slug, name]) => ({ slug, name }));
      build();
      restore();
    }).catch((error) => {
      $(".kv-said", root).textContent = `The catalogue could not be read (${error.message}).`;
    });

    const byModels = () => state.gpus === undefined;
    const listed = () => (byModels() ? state.models : state.gpus) || [];

    function build() {
      const options = (list) => list.map(([value, label]) => make("option", { value }, label));
      const modelOptions = models.map((model) => [model.slug, model.name]);
      const gpuOptions = site.gpus.map((gpu) => [gpu.id, gpu.short]);
      const add = (name, label, list) => {
        const select = make(
          "select",
          { name: `add-${name}` },
          make("option", { value: "" }, `add ${label} …`),
          ...options(list),
        );
        select.addEventListener("change", () => {
          if (select.value) change(name, [...(state[name] || []), select.value]);
          select.value = "";
        });
        return make("label", { class: `kv-add-${name}` }, label, select);
      };
      const one = (name, label, list) => {
        const select = make("select", { name }, ...options(list));
        select.addEventListener("change", () => {
          state[name] = [select.value];
          show();
          write();
        });
        return make("label", { class: `kv-one-${name}` }, label, select);
      };
      const mode = make(
        "select",
        { name: "what" },
        make("option", { value: "models" }, "models"),
        make("option", { value: "gpus" }, "accelerators"),
      );
      mode.addEventListener("change", () => {
        if (mode.value === "gpus") {
          state = { model: [state.models?.[0] || models[0].slug], gpus: [state.gpu?.[0] || site.gpus[0].id] };
        } else {state = {
            gpu: [state.gpus?.[0] || site.gpus[0].id],
            models: [state.model?.[0] || models[0].slug],
          };}
        show();
        write();
      });
      root.replaceChildren(
        make(
          "div",
          { class: "kv-controls" },
          make("label", {}, "compare", mode),
          add("models", "a model", modelOptions),
          one("gpu", "on", gpuOptions),
          add("gpus", "an accelerator", gpuOptions),
          one("model", "for", modelOptions),
          one("tp", "devices", [
            ["fewest", "fewest that serve"],
            ...site.sizes.map((n) => [String(n), String(n)]),
          ]),
        ),
        make("div", { class: "kv-chips kv-chosen", "aria-label": "Compared" }),
        make("p", { class: "kv-said", "aria-live": "polite" }),
        make(
          "figure",
          { class: "kv-figure" },
          make("ul", { class: "kv-legend kv-lines" }),
          make("div", {
            class: "kv-chart",
            role: "img",
            tabindex: "0",
            "aria-label": "Simultaneous users by context, one line for each",
          }),
          make("figcaption", {}, "Below a line it fits. Both axes double with every step."),
        ),
        make("div", {
          class: "kv-scroll kv-scroll--open",
          role: "region",
          tabindex: "0",
          "aria-label": "Simultaneous users by context",
        }, make("table", { class: "kv-table kv-grid" })),
      );
    }

    function change(name, values) {
      state[name] = [...new Set(values)].slice(0, MOST);
      show();
      write();
    }

    function write(replace) {
      writeState(state, replace);
    }

    function pick(model, gpu) {
      const wanted = state.tp?.[0] && state.tp[0] !== "fewest"
        ? [site.sizes.indexOf(Number(state.tp[0]))]
        : site.sizes.map((_, n) => n);
      const possible = wanted.map((size) =>
        kvCapacity.configure(site, model, gpu, size, "released", model.kv)
      ).filter(Boolean);
      const context = Math.min(8192, model.limit);
      return possible.find((one) => kvCapacity.serves(one, context)) || possible[possible.length - 1] || null;
    }

    function things() {
      const model = (slug) => known.get(slug);
      const gpu = (id) => site.gpus.find((one) => one.id === id);
      const pairs = byModels()
        ? listed().map((slug) => [model(slug), gpu(state.gpu[0]), model(slug).name, `models/${slug}/`])
        : listed().map((id) => [model(state.model[0]), gpu(id), gpu(id).short, `gpus/${id}/`]);
      return pairs.map(([m, g, name, href], n) => {
        const config = pick(m, g);
        const label = config && config.size > 1
          ? (byModels() ? `${name} on ${config.size}` : `${config.size} × ${name}`)
          : name;
        return {
          key: listed()[n],
          label,
          href,
          config,
          answers: config ? site.contexts.map((c) => kvCapacity.answer(config, c)) : [],
        };
      });
    }

    /* Each model has a file of its own; only those that are compared are read. */
    async function show() {
      const mine = (turn += 1);
      const wanted = byModels() ? listed() : state.model;
      const base = new URL("models/", new URL(root.dataset.kvCompare, location.href));
      await Promise.all(
        wanted.map(async (slug) => known.set(slug, await load(new URL(`${slug}.json`, base)))),
      );
      if (mine === turn) showNow();
    }

    function showNow() {
      $("select[name=what]", root).value = byModels() ? "models" : "gpus";
      for (
        const [name, on] of [["add-models", byModels()], ["one-gpu", byModels()], ["add-gpus", !byModels()], [
          "one-model",
          !byModels(),
        ]]
      ) $(`.kv-${name}`, root).hidden = !on;
      for (const name of ["gpu", "model"]) {
        if (state[name]) $(`select[name=${name}]`, root).value = state[name][0];
      }
      $("select[name=tp]", root).value = state.tp?.[0] || "fewest";
      const all = things();
      const key = byModels() ? "models" : "gpus";
      $(".kv-chosen", root).replaceChildren(
        ...all.map((thing) =>
          make("button", {
            type: "button",
            class: "kv-chip",
            "aria-label": `Remove ${thing.label}`,
            onclick: () => change(key, listed().filter((one) => one !== thing.key)),
          }, `${thing.label} ×`)
        ),
      );
      const where = byModels()
        ? `on ${site.gpus.find((one) => one.id === state.gpu[0]).name}`
        : `for ${models.find((one) => one.slug === state.model[0]).name}`;
      const full = listed().length >= MOST
        ? ` ${MOST} are the most; remove one to add another.`
        : listed().length < 2
        ? " Add one to compare with."
        : "";
      $(".kv-said", root).replaceChildren(
        `${count(all.length)} ${
          byModels() ? "models" : "accelerators"
        } ${where}, ${site.engine.label}, weights as released.${full}`,
        ignoredNote(ignored) || "",
      );
      legend(all);
      tabulate(all);
      draw(all);
    }

    function legend(all) {
      $(".kv-legend", root).replaceChildren(...all.map((thing, n) => {
        const drawn = (name, attributes, ...inner) => {
          const element = document.createElementNS("http://www.w3.org/2000/svg", name);
          for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
          element.append(...inner);
          return element;
        };
        const line = drawn("line", { class: `kv-line-${n + 1}`, x1: "1", y1: "5", x2: "25", y2: "5" });
        return make(
          "li",
          {},
          drawn("svg", { width: "26", height: "10", "aria-hidden": "true" }, line),
          thing.label,
        );
      }));
    }

    function tabulate(all) {
      const up = new URL("../", location.href);
      const heads = ["", "devices", ...site.contexts.map(tokens), "longest", "weights"].map((text, n) =>
        make(
          "th",
          { scope: "col", class: n ? "kv-num" : false },
          text || "what",
          n === site.contexts.length + 3
            ? make("span", { class: "kv-unit" }, make("span", { class: "kv-gib" }, "GiB"), " each")
            : null,
        )
      );
      const rows = all.map((thing) =>
        make(
          "tr",
          {},
          make("th", { scope: "row" }, make("a", { href: new URL(thing.href, up).href }, thing.label)),
          ...(thing.config
            ? [
              make("td", { class: "kv-num" }, String(thing.config.size)),
              ...thing.answers.map((answer) => usersCell(answer.users, answer.verdict)),
              make(
                "td",
                { class: "kv-num", title: `${count(thing.config.longest)} tokens` },
                roughTokens(thing.config.longest),
              ),
              make(
                "td",
                { class: "kv-num kv-size", "data-value": thing.config.weights },
                gib(thing.config.weights),
              ),
            ]
            : [
              make(
                "td",
                { class: "kv-no kv-why", colspan: site.contexts.length + 3 },
                "not offered: this split does not exist here",
              ),
            ]),
        )
      );
      $("table", root).replaceChildren(
        make("caption", {}, "Simultaneous users, by context of each request in tokens"),
        make("thead", {}, make("tr", {}, ...heads)),
        make("tbody", {}, ...rows),
      );
      units($("table", root));
    }

    async function draw(all) {
      const chart = $(".kv-chart", root);
      const values = all.flatMap((thing) =>
        thing.answers.map((answer, n) => ({
          line: thing.label,
          context: site.contexts[n],
          users: answer.users,
          verdict: answer.verdict,
        }))
      )
        .filter((row) =>
          row.users > 0 && row.verdict !== "context_exceeds_model" && row.verdict !== "weights_exceed_memory"
        );
      await script("vega.js");
      view?.finalize();
      view = null;
      chart.kvView = undefined;
      chart.replaceChildren();
      if (!values.length) {
        chart.textContent = "None of these serves a single request.";
        return;
      }
      await enliven(chart, specification(all.map((thing) => thing.label), values));
      view = chart.kvView;
    }

    function specification(names, values) {
      const most = Math.max(...values.map((row) => row.users));
      const contexts = values.map((row) => row.context);
      const powers = (low, high, stride = 1) => {
        const list = [];
        for (let n = 0; n < 40; n += stride) if (2 ** n >= low && 2 ** n <= high) list.push(2 ** n);
        return list;
      };
      const label =
        "datum.value >= 1048576 ? datum.value / 1048576 + 'M' : datum.value >= 1024 ? datum.value / 1024 + 'K' : datum.value";
      return {
        width: 700,
        height: 330,
        data: { values },
        layer: [
          { mark: { type: "line", strokeWidth: 2.2 } },
          {
            mark: { type: "point", filled: true, size: 34 },
            params: [{
              name: "hover",
              select: {
                type: "point",
                fields: ["line"],
                on: "pointerover",
                nearest: true,
                clear: "pointerout",
              },
            }],
          },
        ],
        encoding: {
          x: {
            field: "context",
            type: "quantitative",
            title: "context of each request, tokens",
            scale: {
              type: "log",
              base: 2,
              nice: false,
              domain: [Math.min(...contexts), Math.max(...contexts)],
            },
            axis: { values: powers(Math.min(...contexts), Math.max(...contexts)), labelExpr: label },
          },
          y: {
            field: "users",
            type: "quantitative",
            title: "simultaneous users",
            scale: { type: "log", base: 2, nice: false, domain: [1, Math.max(2, most * 1.15)] },
            axis: { values: powers(1, most * 1.15, most > 256 ? 2 : 1), format: ",d" },
          },
          color: {
            field: "line",
            type: "nominal",
            legend: null,
            scale: { domain: names, range: ["var(--kv-l1)", "var(--kv-l2)", "var(--kv-l3)", "var(--kv-l4)"] },
          },
          strokeDash: {
            field: "line",
            type: "nominal",
            legend: null,
            scale: { domain: names, range: [[1, 0], [7, 3], [2, 2], [9, 3, 2, 3]] },
          },
          tooltip: [{ field: "line", title: "what" }, {
            field: "context",
            title: "tokens each",
            format: ",d",
          }, { field: "users", title: "users", format: ",d" }],
        },
        config: {
          background: "transparent",
          font: "KV Sans",
          view: { stroke: null },
          axis: {
            labelColor: "var(--kv-soft)",
            titleColor: "var(--kv-soft)",
            labelFontSize: 12,
            titleFontSize: 12,
            titleFontWeight: "normal",
            gridColor: "var(--kv-grid)",
            domainColor: "var(--kv-line)",
            tickColor: "var(--kv-line)",
          },
        },
      };
    }

    function restore() {
      if (!site) return;
      const slugs = models.map((model) => model.slug), ids = site.gpus.map((gpu) => gpu.id);
      ({ state, ignored } = readState({
        models: slugs,
        gpus: ids,
        gpu: ids,
        model: slugs,
        tp: ["fewest", ...site.sizes.map(String)],
      }));
      if (state.gpus && state.models) {
        ignored.push("models (accelerators are compared)");
        delete state.models;
      }
      const first = ids.includes("h100-sxm-80gb") ? "h100-sxm-80gb" : ids[0];
      if (state.gpus) state.model ||= [slugs[0]];
      else {
        state.gpu ||= [first];
        const usual = root.dataset.kvUsual.split(" ").filter((slug) => slugs.includes(slug));
        state.models ||= (usual.length > 1 ? usual : slugs).slice(0, 2);
      }
      for (const key of ["models", "gpus"]) {
        if (state[key]?.length > MOST) {
          ignored.push(...state[key].slice(MOST).map((one) => `${key}=${one}`));
          state[key] = state[key].slice(0, MOST);
        }
      }
      show();
    }

    return { restore, release: () => view?.finalize() };
  }

  kvreport.compare = compare;
})();
