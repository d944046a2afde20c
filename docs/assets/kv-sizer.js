/* The sizer's page: reads the form, asks kv-sizing.js, and lays the answer out. */
(function () {
  "use strict";

  const {
    $,
    $$,
    make,
    count,
    gib,
    memoryBar,
    onDevices,
    load,
    readState,
    writeState,
    ignoredNote,
    debounce,
    units,
  } = kvreport;
  const LENGTHS = ["context", "prompt", "output", "average", "prefix"];
  const NUMBERS = [
    "concurrent",
    "users",
    "rate",
    "latency",
    "burst",
    "spares",
    "ttft",
    "tpot",
    "efficiency",
    "available",
  ];

  /* 32K is 32,768: as kvreport.units reads it. */
  function parseTokens(text) {
    const match = /^\s*(\d[\d,_]*(?:\.\d+)?)\s*([km]?)\s*$/i.exec(text);
    if (!match) return NaN;
    const value = Number(match[1].replace(/[,_]/g, "")) *
      { "": 1, k: 1024, m: 1048576 }[match[2].toLowerCase()];
    return value >= 0 && value <= 2 ** 30 && Number.isInteger(value) ? value : NaN;
  }

  function sizer(form) {
    const box = $("[data-kv-sized]");
    const base = new URL(form.dataset.kvSizer, location.href);
    const fields = Object.fromEntries($$("input, select", form).map((field) => [field.name, field]));
    const start = Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.value]));
    const known = Object.fromEntries(
      Object.entries(fields).map(([name, field]) => [
        name,
        field.options ? Array.from(field.options, (o) => o.value) : null,
      ]),
    );
    let turn = 0;

    /* What the form says, or the first field that cannot be read. */
    function read(site) {
      const asked = {};
      for (const name of [...LENGTHS, ...NUMBERS]) {
        const text = fields[name].value.trim();
        if (!text) continue;
        const value = LENGTHS.includes(name)
          ? parseTokens(text)
          : /^\d+(\.\d+)?$/.test(text)
          ? Number(text)
          : NaN;
        if (Number.isNaN(value)) {
          return {
            error: `“${text}” is no ${LENGTHS.includes(name) ? "length: write 8192, 32K or 1M" : "number"} (${
              label(fields[name])
            }).`,
          };
        }
        asked[name] = value;
      }
      for (const name of ["users", "spares", "available"]) {
        if (asked[name] !== undefined && !Number.isInteger(asked[name])) {
          return { error: `${label(fields[name])} must be a whole number.` };
        }
      }
      let prices = null;
      for (const part of fields.prices.value.split(",").map((text) => text.trim()).filter(Boolean)) {
        const match = /^([a-z0-9.-]+)\s*=\s*(\d+(?:\.\d+)?)$/i.exec(part);
        const gpu = match && site.gpus.find((one) => one.id === match[1].toLowerCase());
        if (!gpu || !(Number(match[2]) > 0)) {
          return {
            error: `“${part}” is no price: write an accelerator’s address and a price above 0, such as ${
              site.gpus[0].id
            }=2.5.`,
          };
        }
        (prices ||= {})[gpu.id] = Number(match[2]);
      }
      return {
        asked: {
          context: asked.context ?? NaN,
          average: asked.average,
          prompt: asked.prompt,
          output: asked.output,
          prefix: asked.prefix,
          concurrent: asked.concurrent,
          users: asked.users,
          perMinute: asked.rate,
          latency: asked.latency,
          burst: asked.burst,
          spares: asked.spares,
          efficiency: asked.efficiency,
          ttft: asked.ttft === undefined ? null : asked.ttft / 1000,
          tpot: asked.tpot === undefined ? null : asked.tpot / 1000,
        },
        available: asked.available || null,
        prices,
      };
    }

    const label = (field) => field.parentElement.firstChild.textContent.trim();

    async function show(ignored = []) {
      const mine = ++turn;
      const slug = fields.model.value;
      let site, peaks, model, times;
      try {
        [site, peaks, model, times] = await Promise.all(
          ["site.json", "peaks.json", `models/${slug}.json`, `times/${slug}.json`].map((name) =>
            load(new URL(name, base))
          ),
        );
      } catch (error) {
        if (mine === turn) {
          box.replaceChildren(
            make("p", { class: "kv-said" }, `The catalogue could not be read (${error.message}).`),
          );
        }
        return;
      }
      if (mine !== turn) return;
      const given = read(site);
      const made = given.error ? given : kvSizing.workload(given.asked);
      if (made.error) {
        refuse(made.error, ignored);
        return;
      }
      const kv = { own: [model.kv], fp8: ["fp8"], any: [...new Set([model.kv, "fp8"])] }[fields.kv.value]
        .filter((name) => name in model.plan);
      const gpus = fields.gpu.value ? [fields.gpu.value] : given.prices ? Object.keys(given.prices) : null;
      const choices = {
        gpus,
        weights: fields.weights.value.split(","),
        kv,
        sizes: null,
        available: given.available,
        prices: given.prices,
      };
      const ranking = kvSizing.rank(site, peaks, model, times, made.work, choices);
      if (!gpus) {
        made.assumed.push(
          "no accelerator was named, so those that more than one cloud rents out come first, each by the memory that it takes in all",
        );
      }
      if (!ranking.deployments.length) {
        refuse(kvSizing.whatToRelax(site, made.work, choices, ranking), ignored);
        return;
      }
      lay({
        site,
        peaks,
        model,
        work: made.work,
        assumed: made.assumed,
        listed: kvSizing.bestOfEach(ranking.deployments),
        all: ranking.deployments,
        priced: Boolean(given.prices),
        alike: Boolean(gpus),
      }, ignored);
    }

    function refuse(sentence, ignored) {
      box.replaceChildren(make("p", { class: "kv-big kv-refused" }, sentence), ignoredNote(ignored) || "");
      box.dataset.kvState = "refused";
    }

    function lay(answer, ignored) {
      const { site, peaks, model, work, assumed, listed } = answer;
      const best = listed[0];
      const back = kvSizing.inverses(peaks, best, work);
      const lines = arithmetic(best, back, work);
      const smaller = best.sure
        ? answer.all.filter((one) => one.gpu === best.gpu && one.devices < best.devices).sort((a, b) =>
          a.devices - b.devices
        )[0]
        : null;
      const commands = ["vllm", "sglang"].map((server) =>
        kvSizing.command(
          server,
          best,
          work,
          model.kv,
          server === "vllm" ? site.engine.utilization : back.fractions && back.fractions.highest,
        )
      );
      box.replaceChildren(
        make(
          "p",
          { class: "kv-big" },
          make("strong", {}, onDevices(best.devices, best.gpu.short)),
          ` ${best.devices === 1 ? "serves" : "serve"} ${count(work.peak)} requests of ${
            count(work.mean)
          } tokens on ${model.name}${best.sure ? "." : ", but only just: within the error of the estimate."}`,
        ),
        ignoredNote(ignored) || "",
        smaller
          ? make(
            "p",
            { class: "kv-note" },
            `Within the error of the estimate ${onDevices(smaller.devices, best.gpu.short)} hold it, too: ${
              smaller.replicas[2]
            } × ${smaller.ranks}, ${count(smaller.each)} users each.`,
          )
          : "",
        sideBySide(best, work),
        bar(best, back),
        make("h2", {}, "How it is computed"),
        make("div", {
          class: "kv-steps",
          role: "region",
          tabindex: "0",
          "aria-label": "The arithmetic with its numbers",
        }, make("ol", {}, ...lines.map((line) => make("li", {}, line)))),
        make("h2", {}, "Others that serve it"),
        ranked(listed, answer),
        make("h2", {}, "Serve it"),
        ...commands.map(command),
        make(
          "p",
          { class: "kv-note" },
          `${site.engine.label}. ${
            assumed.length ? `Assumed: ${assumed.join("; ")}. ` : ""
          }Times are bounds at peak rates, never promises; what surely fits comes first, then ${
            answer.priced ? "the price" : "the memory taken in all"
          } decides.`,
        ),
        make(
          "p",
          {},
          ...[
            ["copy link", () => navigator.clipboard.writeText(location.href)],
            [
              "copy as Markdown",
              () => navigator.clipboard.writeText(markdown(answer, best, lines, commands)),
            ],
            ["JSON", () => save(JSON.stringify(json(answer, best, back, commands), null, 2))],
          ].flatMap((
            [name, act],
          ) => [make("button", { type: "button", class: "kv-button", onclick: act }, name), " "]),
        ),
      );
      units(box);
      box.dataset.kvState = "sized";
      box.kvAnswer = json(answer, best, back, commands);
    }

    function sideBySide(best, work) {
      const columns = [
        ["on average", Math.ceil(work.concurrent), best.replicas[0]],
        [`at the peak (× ${work.burst})`, work.peak, best.replicas[1]],
        [
          work.spares
            ? `with ${work.spares === 1 ? "one spare" : `${work.spares} spares`} (N+${work.spares})`
            : "without a spare",
          work.peak,
          best.replicas[2],
        ],
      ];
      const row = (title, value) =>
        make(
          "tr",
          {},
          make("th", { scope: "row" }, title),
          ...columns.map((column) => make("td", { class: "kv-num" }, value(column))),
        );
      return make(
        "div",
        {
          class: "kv-scroll kv-scroll--open",
          role: "region",
          tabindex: "0",
          "aria-label": "Average, peak and spares",
        },
        make(
          "table",
          { class: "kv-table" },
          make(
            "thead",
            {},
            make(
              "tr",
              {},
              make("th", { scope: "col" }, best.gpu.name),
              ...columns.map(([title]) => make("th", { scope: "col", class: "kv-num" }, title)),
            ),
          ),
          make(
            "tbody",
            {},
            row("requests in flight", ([, requests]) => count(requests)),
            row(`replicas of ${best.ranks}`, ([, , replicas]) => count(replicas)),
            row("GPUs", ([, , replicas]) => count(replicas * best.ranks)),
            row("room for", ([, , replicas]) => count(replicas * best.each)),
            row(
              "room left",
              ([, requests, replicas]) => `${Math.round((replicas * best.each / requests - 1) * 100)} %`,
            ),
          ),
        ),
      );
    }

    function bar(best, back) {
      const used = Math.min(back.each * (best.request - best.shared), best.pool);
      const state = Math.min(back.each * best.state, used);
      return memoryBar(
        "Memory of one GPU",
        [
          ["weights", "weights", best.weights],
          ["cache", "cache of its share of the peak", used - state + best.shared],
          ["state", "recurrent states", state],
          ["reserve", "activations and reserve", best.reserve],
          ["free", "free pool", Math.max(best.pool - used - best.shared, 0)],
          [
            "free",
            "not taken by the engine",
            Math.max(best.total - best.weights - best.reserve - best.pool, 0),
          ],
        ],
        best.total,
        `Memory of one GPU at the peak: ${count(back.each)} requests on each replica.`,
      );
    }

    function arithmetic(best, back, work) {
      const shared = best.shared
        ? `, of which ${gib(best.shared, 3)} GiB of prefix are held once for all`
        : "";
      const lines = [
        `requests in flight: ${+work.concurrent.toFixed(1)} × ${work.burst} burst = ${
          count(work.peak)
        } at the peak`,
        `pool per GPU: the engine’s share of ${gib(best.total)} GiB, less ${gib(best.weights)} weights and ${
          gib(best.reserve)
        } reserve = ${gib(best.pool)} GiB`,
        `one request of ${count(work.mean)} tokens holds ${gib(best.request, 3)} GiB per GPU${shared}`,
        `a replica of ${best.ranks} holds ${count(best.held)} of them and serves ${
          count(best.each)
        }; what binds: ${kvKernel.words.limits[best.binds]}`,
        `replicas: ${count(work.peak)} / ${count(best.each)} = ${
          best.replicas[1]
        } at the peak, + ${work.spares} spare = ${best.replicas[2]}`,
        `GPUs: ${best.replicas[2]} × ${best.ranks} = ${best.devices}`,
      ];
      if (!Number.isNaN(best.tpot)) {
        lines.push(
          `a step with ${count(back.each)} requests takes at least ${
            (best.tpot * 1e3).toFixed(1)
          } ms, about ${(best.tpot / work.efficiency * 1e3).toFixed(1)} ms at ${
            Math.round(work.efficiency * 100)
          } % of the peak rates`,
        );
      }
      if (!Number.isNaN(best.ttft)) {
        lines.push(
          `a prompt of ${count(work.prompt)} tokens takes at least ${
            (best.ttft * 1e3).toFixed(0)
          } ms, about ${(best.ttft / work.efficiency * 1e3).toFixed(0)} ms`,
        );
      }
      lines.push(
        `smallest pool that would do: ${gib(back.pool)} GiB per GPU${
          back.utilization === null ? "" : `, a utilisation of ${back.utilization} (vLLM)`
        }`,
      );
      lines.push(
        back.fractions
          ? `static memory fraction that works (SGLang): ${back.fractions.lowest} to ${back.fractions.highest}`
          : "no static memory fraction works (SGLang): cache and working memory together are too large",
      );
      lines.push(`longest request that all of them could have at once: ${count(back.longest)} tokens`);
      return lines;
    }

    function ranked(listed, answer) {
      const { priced } = answer;
      const up = new URL("../", location.href);
      const heads = [
        "accelerator",
        "GPUs",
        "replicas × size",
        "weights",
        "cache",
        "users each",
        "room left",
        "memory in all",
        ...(priced ? ["per hour"] : []),
        "what binds",
      ];
      const numeric = new Set([
        "GPUs",
        "replicas × size",
        "users each",
        "room left",
        "memory in all",
        "per hour",
      ]);
      const rows = listed.slice(0, 20).map((one) =>
        make(
          "tr",
          {},
          make(
            "th",
            { scope: "row" },
            make("a", { href: new URL(`gpus/${one.gpu.id}/`, up).href }, one.gpu.short),
          ),
          ...[[one.devices, count(one.devices)], [null, `${one.replicas[2]} × ${one.ranks}`]].map((
            [, text],
          ) => make("td", { class: "kv-num" }, text)),
          make("td", {}, one.weightFormat),
          make("td", {}, one.kv),
          make("td", {
            class: `kv-num${one.sure ? "" : " kv-tight"}`,
            title: one.sure ? false : "tight: within the error of the estimate",
          }, count(one.each)),
          make("td", { class: "kv-num" }, `${Math.round(one.headroom * 100)} %`),
          make("td", { class: "kv-num kv-size", "data-value": one.memory }, gib(one.memory, 0)),
          ...(priced ? [make("td", { class: "kv-num" }, one.price.toFixed(2))] : []),
          make("td", {}, kvKernel.words.limits[one.binds]),
        )
      );
      return make(
        "div",
        { class: "kv-scroll", role: "region", tabindex: "0", "aria-label": "Deployments, best first" },
        make(
          "table",
          { class: "kv-table" },
          make(
            "caption",
            {},
            `The best deployment on each of ${count(listed.length)} accelerators${
              answer.alike ? "" : ", commonly rented ones first"
            }${listed.length > 20 ? "; the first 20" : ""}`,
          ),
          make(
            "thead",
            {},
            make(
              "tr",
              {},
              ...heads.map((text) =>
                make(
                  "th",
                  { scope: "col", class: numeric.has(text) ? "kv-num" : false },
                  text,
                  text === "memory in all" ? make("span", { class: "kv-unit kv-gib" }, "GiB") : null,
                )
              ),
            ),
          ),
          make("tbody", {}, ...rows),
        ),
      );
    }

    function command(text) {
      const button = make("button", {
        type: "button",
        class: "kv-chip",
        onclick: () => navigator.clipboard.writeText(text),
      }, "copy");
      return make(
        "div",
        { class: "highlight kv-command" },
        make("pre", {}, make("code", { tabindex: "0" }, text)),
        button,
      );
    }

    function json(answer, best, back, commands) {
      const { site, model, work, assumed, listed } = answer;
      const one = (found) => ({
        gpu: found.gpu.id,
        devices: found.devices,
        tensor_parallel: found.ranks,
        replicas: { baseline: found.replicas[0], burst: found.replicas[1], with_spares: found.replicas[2] },
        weight_format: found.weightFormat,
        kv_format: found.kv,
        users_per_replica: found.each,
        users_held_by_memory: found.held,
        headroom: found.headroom,
        verdict: found.sure ? "fits" : "tight",
        binds: found.binds,
        weight_bytes_per_gpu: found.weights,
        reserve_bytes_per_gpu: found.reserve,
        kv_pool_bytes_per_gpu: found.pool,
        kv_bytes_per_request_per_gpu: found.request,
        memory_bytes: found.memory,
        price_per_hour: found.price,
        tpot_lower_bound_s: Number.isNaN(found.tpot) ? null : found.tpot,
        ttft_lower_bound_s: Number.isNaN(found.ttft) ? null : found.ttft,
      });
      return {
        model: model.id,
        engine: site.engine.name,
        release: site.release,
        link: location.href,
        workload: work,
        assumptions: assumed,
        deployments: listed.slice(0, 20).map(one),
        best: {
          ...one(best),
          smallest_pool_bytes: back.pool,
          smallest_utilization: back.utilization,
          mem_fraction_static: back.fractions,
          longest_context_tokens: back.longest,
          commands: { vllm: commands[0], sglang: commands[1] },
        },
      };
    }

    function markdown(answer, best, lines, commands) {
      const { model, work, assumed, listed } = answer;
      const cell = (text) => String(text).replace(/\|/g, "\\|");
      return [
        `## ${count(work.peak)} requests of ${count(work.mean)} tokens on ${model.name}`,
        "",
        `**${onDevices(best.devices, best.gpu.name)}**, ${
          best.replicas[2]
        } replicas of ${best.ranks}, weights ${best.weightFormat}, cache ${best.kv}.`,
        "",
        ...lines.map((line) => `- ${line}`),
        "",
        "| accelerator | GPUs | replicas × size | users each | GiB in all |",
        "| --- | ---: | ---: | ---: | ---: |",
        ...listed.slice(0, 10).map((one) =>
          `| ${cell(one.gpu.name)} | ${one.devices} | ${one.replicas[2]} × ${one.ranks} | ${one.each} | ${
            gib(one.memory, 0)
          } |`
        ),
        "",
        ...commands.flatMap((text) => ["```sh", text, "```"]),
        "",
        assumed.length ? `Assumed: ${assumed.join("; ")}.` : "",
        location.href,
        "",
      ].join("\n");
    }

    function save(text) {
      const link = make("a", {
        href: URL.createObjectURL(new Blob([text], { type: "application/json" })),
        download: "kvreport-size.json",
      });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    }

    function write(replace) {
      const state = {};
      for (const name of Object.keys(fields)) {
        const value = fields[name].value.trim();
        if (value !== start[name]) state[name] = value === "" ? "none" : value;
      }
      writeState(state, replace);
    }

    function restore() {
      const open = Object.fromEntries(
        Object.entries(known).map(([name, values]) => [name, values && [...values, "none"]]),
      );
      const { state, ignored } = readState(open);
      for (const [name, field] of Object.entries(fields)) {
        const asked = state[name]?.[0];
        field.value = asked === "none" ? "" : asked ?? start[name];
      }
      return show(ignored);
    }

    const typed = debounce(() => {
      write(true);
      show();
    }, 60);
    for (const field of Object.values(fields)) {
      field.addEventListener(
        "input",
        field.options
          ? () => {
            write();
            show();
          }
          : typed,
      );
    }
    form.addEventListener("submit", (event) => event.preventDefault());
    for (const chip of $$("[data-preset]", form)) {
      chip.addEventListener("click", () => {
        const values = Object.fromEntries(chip.dataset.preset.split(" ").map((pair) => pair.split("=")));
        for (const name of [...LENGTHS, ...NUMBERS]) {
          if (name !== "available" && name !== "efficiency") fields[name].value = values[name] ?? "";
        }
        write();
        show();
      });
    }
    restore();
    return { restore };
  }

  kvreport.sizer = sizer;
})();
