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
    load,
    readState,
    writeState,
    ignoredNote,
    debounce,
    command,
    copy,
    grid,
    plural,
    picker,
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
    const layoutWords = JSON.parse($("template.kv-layouts", form).content.textContent);
    const pickers = Object.fromEntries(
      $$("[data-kv-picker]", form).map((place) => {
        const name = place.dataset.kvName;
        const made = picker(place, base, () => {
          write();
          show();
        });
        return [name, made];
      }),
    );
    const named = (field) => field.name && !(field.name in pickers);
    const fields = Object.fromEntries(
      $$("input, select", form).filter(named).map((field) => [field.name, field]),
    );
    const values = {
      get: (name) => (name in pickers ? pickers[name].value() : fields[name].value.trim()),
      set: (name, value) => {
        if (name in pickers) pickers[name].set(value, nameOf(name, value));
        else kvreport.put(fields[name], value);
      },
    };
    const names = [...Object.keys(pickers), ...Object.keys(fields)];
    const start = Object.fromEntries(
      names.map((name) => [
        name,
        name in pickers ? pickers[name].value() : kvreport.printed(fields[name]).trim(),
      ]),
    );
    const advanced = $("details.kv-advanced", form);
    /** @type {any} */
    let catalog = null;
    let turn = 0;

    function nameOf(kind, id) {
      if (!id) return kind === "gpu" ? "Any" : "";
      if (kind === "model") return (catalog.models.find(([slug]) => slug === id) || [id, id])[1];
      return (kvCapacity.gpuOf(catalog, id) || { name: id }).name;
    }

    /* What the form says, or the first field that cannot be read. */
    function read(site) {
      const asked = {};
      for (const name of [...LENGTHS, ...NUMBERS]) {
        const text = values.get(name);
        if (!text) continue;
        const value = LENGTHS.includes(name)
          ? parseTokens(text)
          : /^\d+(\.\d+)?$/.test(text)
          ? Number(text)
          : NaN;
        if (Number.isNaN(value)) {
          return {
            error: `${label(fields[name])}: “${text}” is not a ${
              LENGTHS.includes(name) ? "length; write 8192, 32K or 1M" : "number"
            }.`,
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
        const match = /^(.+?)\s*=\s*(\d+(?:\.\d+)?)$/.exec(part);
        const found = match && gpusCalled(site, match[1]);
        if (!found || found.length !== 1 || !(Number(match[2]) > 0)) {
          return {
            error: found && found.length > 1
              ? `Prices: “${match[1]}” may be ${
                found.slice(0, 4).map((gpu) => gpu.id).join(" or ")
              }; write one of them.`
              : `Prices: “${part}” is not a price; write a GPU and a price above 0, such as h100=2.5.`,
          };
        }
        (prices ||= {})[found[0].id] = Number(match[2]);
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

    const label = (field) => form.querySelector(`label[for="${field.id}"]`).textContent.trim();

    /* The accelerators that a reader may mean: one by its id or short name, else all whose name begins so. */
    function gpusCalled(site, text) {
      const plain = (name) => name.toLowerCase().replace(/[^a-z0-9]/g, "");
      const wanted = plain(text);
      const exact = site.gpus.filter((gpu) => [gpu.id, gpu.short, gpu.name].map(plain).includes(wanted));
      return exact.length ? exact.slice(0, 1) : site.gpus.filter((gpu) => plain(gpu.id).startsWith(wanted));
    }

    /* Seconds that a request takes at the targets of the form; 0 where it has none per token. */
    function secondsWanted() {
      const [first, each, output] = ["ttft", "tpot", "output"].map((name) =>
        parseTokens(values.get(name) || "0")
      );
      return each > 0 && output > 0 ? Math.ceil(((first || 0) + each * output) / 1000) : 0;
    }

    /* Requests, people and the time that a request takes belong together: filling one in fills in or empties others. */
    function complete(changed) {
      if (changed === "users" && values.get("users")) {
        values.set("concurrent", "");
        if (!values.get("rate")) values.set("rate", "0.5");
        if (!values.get("latency")) values.set("latency", String(secondsWanted() || 15));
      }
      if (changed === "concurrent" && values.get("concurrent")) {
        for (const name of ["users", "rate", "latency"]) values.set(name, "");
      }
      if (["prompt", "output"].includes(changed) && catalog) {
        const least = parseTokens(values.get("prompt") || "0") + parseTokens(values.get("output") || "0");
        const context = parseTokens(values.get("context") || "0");
        const next = catalog.contexts.find((n) => n >= least);
        if (context < least && next) values.set("context", kvreport.tokens(next));
      }
    }

    /* Seconds that a request takes on a deployment at peak. */
    const secondsOf = ({ ttft, tpot }, { output, efficiency }) =>
      kvKernel.requestSeconds(ttft, tpot, output, efficiency);

    /* ignored: what of the address was not read. settling: how often a latency that nobody stated may still be set to
       that of the answer. */
    async function show(ignored = [], settling = 0) {
      const mine = ++turn;
      kvreport.busy();
      const slug = values.get("model");
      let site, peaks, model, times;
      try {
        [site, peaks, model, times] = await Promise.all([
          kvreport.facts(base),
          ...["peaks.json", `models/${slug}.json`, `times/${slug}.json`].map((name) =>
            load(new URL(name, base))
          ),
        ]);
      } catch (error) {
        if (mine === turn) {
          kvreport.busy(false);
          box.replaceChildren(
            make("p", { class: "kv-said" }, `The catalog could not be read (${error.message}).`),
          );
        }
        return;
      }
      if (mine !== turn) return;
      catalog = site;
      const engine = values.get("engine");
      if (engine !== site.engine.name) {
        const [other, decided] = await Promise.all(
          [`engines/${engine}.json`, `engines/${engine}/${slug}.json`].map((name) =>
            load(new URL(name, base)).catch(() => null)
          ),
        );
        if (mine !== turn) return;
        if (!other || !decided) {
          const label = fields.engine.selectedOptions[0].textContent;
          refuse(`${label} does not run ${model.name}.`, ignored);
          return;
        }
        site = kvCapacity.underEngine(site, other);
        model = kvCapacity.decided(model, decided);
        peaks = kvSizing.underEngine(peaks, site);
      }
      const given = read(site);
      const made = given.error ? given : kvSizing.workload(given.asked);
      if (made.error) {
        refuse(made.error, ignored);
        return;
      }
      const kv = { own: [model.kv], fp8: ["fp8"], any: [...new Set([model.kv, "fp8"])] }[fields.kv.value]
        .filter((name) => name in model.plan);
      const gpus = values.get("gpu") ? [values.get("gpu")] : given.prices ? Object.keys(given.prices) : null;
      const few = engine !== catalog.engine.name;
      const same = kvSizing.sizeCommand(model.id, few ? engine : "", given, {
        gpu: values.get("gpu"),
        weights: fields.weights.value === "released" ? "" : fields.weights.value,
        kv: { own: "", fp8: "fp8", any: "auto,fp8" }[fields.kv.value],
      });
      const choices = {
        gpus,
        weights: fields.weights.value.split(","),
        kv,
        layouts: null,
        available: given.available,
        prices: given.prices,
      };
      await kvreport.pause();
      const steps = kvSizing.ranking(site, peaks, model, times, made.work, choices);
      const ranking = await kvreport.inSlices(steps, () => mine === turn);
      await kvreport.pause();
      if (!ranking || mine !== turn) return;
      if (!ranking.deployments.length) {
        const gpu = kvCapacity.gpuOf(site, values.get("gpu"));
        const unknown = few && gpu && !kvCapacity.isPublished(model, gpu);
        refuse(
          unknown
            ? kvKernel.words.sentences.gpu_not_published.replace("{engine}", site.engine.label).replace(
              "{device}",
              gpu.name,
            )
            : kvSizing.whatToRelax(site, made.work, choices, ranking),
          ignored,
        );
        if (few || gpu?.devices) {
          if (!unknown) box.append(make("p", { class: "kv-note" }, whatIsTried({ site, model, gpu })));
          box.append(command(same));
        }
        return;
      }
      const listed = gpus?.length === 1
        ? everyWay(ranking.deployments)
        : kvSizing.bestOfEach(ranking.deployments);
      const seconds = String(Math.ceil(secondsOf(listed[0], made.work)));
      if (settling && values.get("latency") !== seconds) {
        values.set("latency", seconds);
        await show(ignored, settling - 1);
        return;
      }
      lay({
        site,
        peaks,
        model,
        times,
        given,
        work: made.work,
        assumed: made.assumed,
        listed,
        all: ranking.deployments,
        priced: Boolean(given.prices),
        alike: Boolean(gpus),
        alone: gpus?.length === 1,
        same,
      }, ignored);
    }

    function refuse(sentence, ignored) {
      kvreport.busy(false);
      box.replaceChildren(
        make("p", { class: "kv-big kv-refused", "aria-live": "polite" }, sentence),
        ignoredNote(ignored) || "",
      );
      box.dataset.kvState = "refused";
    }

    /* On one kind of GPU: the best of each layout and pair of formats. */
    function everyWay(deployments) {
      const seen = new Map();
      for (const one of deployments) {
        const key = [one.layout.label, one.weightFormat, one.kv].join();
        if (!seen.has(key)) seen.set(key, one);
      }
      return [...seen.values()];
    }

    /* "8 × H200"; of unequal ones "RTX 5090 + RTX 3090", or "2 machines of RTX 5090 + RTX 3090". */
    function gpusOf({ devices, gpu }, name) {
      if (!gpu.devices) return `${count(devices)} × ${name}`;
      const machines = devices / gpu.devices.length;
      return machines > 1 ? `${count(machines)} machines of ${name}` : name;
    }

    /* "2 replicas of 4 GPUs + 1 spare" */
    function replicasOf(best, work) {
      const each = best.layout.devices > 1 ? ` of ${best.layout.devices} GPUs` : "";
      const spares = work.spares ? ` + ${plural(work.spares, "spare|spares")}` : "";
      return `${plural(best.replicas[1], "replica|replicas")}${each}${spares}`;
    }

    /* The question as it was asked: "For 500 people using Llama 3.1 8B (62.5 concurrent requests, 125 at peak)". */
    function questionOf(asked, work, name) {
      const concurrent = +work.concurrent.toFixed(1);
      const requests = `${count(concurrent)} concurrent ${concurrent === 1 ? "request" : "requests"}`;
      const peak = work.peak > concurrent ? `${count(work.peak)} at peak` : "";
      if (asked.users === 1) {
        const each = asked.perMinute >= 60 ? [asked.perMinute / 60, "second"] : [asked.perMinute, "minute"];
        return `For ${plural(+each[0].toFixed(2), "request|requests")} per ${
          each[1]
        } to ${name}, each taking ${asked.latency} s (${[requests, peak].filter(Boolean).join(", ")})`;
      }
      if (asked.users) {
        return `For ${count(asked.users)} people using ${name} (${
          [requests, peak].filter(Boolean).join(", ")
        })`;
      }
      return `For ${requests} to ${name}${peak ? ` (${peak})` : ""}`;
    }

    const NO_GPU = "You chose no GPU, so current GPUs that several cloud providers offer rank first";

    /* What was filled in for the reader, as sentences that end in a space. */
    function assumedIn({ assumed, alike }) {
      return (assumed.length ? `Assumed: ${assumed.join("; ")}. ` : "") + (alike ? "" : `${NO_GPU}. `);
    }

    const formatOf = (list, name) =>
      name === "released" ? "As released" : (list.find((one) => one.name === name) || { label: name }).label;

    function lay(answer, ignored) {
      const { site, peaks, model, times, given, work, listed } = answer;
      const best = listed[0];
      const back = kvSizing.inverses(site, peaks, times, best, work);
      const lines = arithmetic(answer, best, back);
      const smaller = best.sure
        ? answer.all.filter((one) => one.gpu === best.gpu && one.devices < best.devices).sort((a, b) =>
          a.devices - b.devices
        )[0]
        : null;
      const server = site.engine.family;
      const near = smaller ? null : mayServe(answer, best);
      const commands = { vllm: null, sglang: null, tensorrt_llm: null }; // that of TensorRT-LLM is written by Python alone
      if (server !== "tensorrt_llm") commands[server] = kvSizing.command(site, best, work);
      const headline = make(
        "p",
        { class: "kv-big", "aria-live": "polite" },
        `${questionOf(given.asked, work, model.name)}, use `,
        make("strong", {}, gpusOf(best, best.gpu.short)),
        `: ${replicasOf(best, work)}.${
          best.sure ? "" : " The fit is tight: the margin is smaller than the error of the estimate."
        }`,
      );
      box.replaceChildren(
        headline,
        ignoredNote(ignored) || "",
        smaller
          ? make(
            "p",
            { class: "kv-note" },
            `Within the error of the estimate, ${gpusOf(smaller, best.gpu.short)} may be enough: ${
              replicasOf(smaller, work)
            }, ${plural(smaller.each, "request|requests")} per replica.`,
          )
          : "",
        near
          ? make(
            "p",
            { class: "kv-note" },
            `Within the error of the estimate, ${gpusOf(near, best.gpu.short)} may be enough (${
              layoutWords[near.layout.label]
            }), although the estimate itself is short of memory there.`,
          )
          : "",
        late(answer, best),
        busy(answer, best),
        tie(answer, best),
        sideBySide(best, work),
        elsewhere(answer, best),
        make("h2", {}, "Start it"),
        ...["vllm", "sglang"].filter((server) => commands[server]).map((server) =>
          command(commands[server], `${server === "vllm" ? "vLLM" : "SGLang"} command`)
        ),
        ...kvCapacity.commandNotes(site, best).map((text) => make("p", { class: "kv-note" }, text)),
        make("h2", {}, "Alternatives"),
        ranked(listed, answer),
        make("h2", {}, "Why this layout"),
        layouts(answer, best),
        make("p", { class: "kv-note" }, whatIsTried({ ...answer, gpu: answer.alone ? best.gpu : null })),
        command(answer.same, "kvreport command"),
        ...(work.prompt && !best.gpu.devices
          ? [
            make("p", { class: "kv-note" }, "The same workload with prefill and decode on separate GPUs:"),
            command(`${answer.same} --disaggregated`),
          ]
          : []),
        make("h2", {}, "How it is computed"),
        make("div", {
          class: "kv-steps",
          role: "region",
          tabindex: "0",
          "aria-label": "The arithmetic with its numbers",
        }, make("ol", {}, ...lines.map((line) => make("li", {}, line)))),
        make(
          "p",
          { class: "kv-note" },
          `${site.engine.label}. ${
            assumedIn(answer)
          }Times marked “at least” are lower bounds at the peak rates. Times marked “about” assume ${
            Math.round(work.efficiency * 100)
          }% of the peak rates. None is a guarantee.`,
        ),
        make(
          "p",
          { class: "kv-actions" },
          ...[
            ["Copy link", (event) => copy(location.href, event.currentTarget)],
            [
              "Copy answer as Markdown",
              (event) => copy(markdown(answer, best, lines, commands), event.currentTarget),
            ],
            [
              "JSON",
              () =>
                kvreport.save(
                  JSON.stringify(json(answer, best, back, commands), null, 2),
                  "application/json",
                  "kvreport-size.json",
                ),
            ],
          ].map(([name, act]) => make("button", { type: "button", class: "kv-button", onclick: act }, name)),
        ),
      );
      units(box);
      kvreport.busy(false);
      box.dataset.kvState = "sized";
      box.kvAnswer = json(answer, best, back, commands);
    }

    /* Which layouts the page tries, and what only the command does. */
    function whatIsTried({ site, model, gpu }) {
      const tried = kvState.everyLayout(site).filter((layout) =>
        (!gpu || kvCapacity.stands(gpu, layout)) &&
        layout.places.every((place) => model.weights.released?.[place] || model.weights.bf16?.[place]) &&
        layout.places.every((place) =>
          Object.values(model.plan).some((rows) => rows[place]?.some((index) => index >= 0))
        )
      );
      return `Layouts tried: ${tried.map((layout) => layoutWords[layout.label]).join(", ")}. ${
        gpu?.devices
          ? "The same search on the command line, which also moves layers from one stage to another:"
          : "The same search on the command line:"
      }`;
    }

    /* The same GPU and formats in every layout that serves: one bar each, bytes of one GPU. */
    function layouts(answer, best) {
      const { site, model, work } = answer;
      const seen = new Map();
      for (const one of answer.all) {
        const alike = one.gpu === best.gpu && one.weightFormat === best.weightFormat && one.kv === best.kv;
        if (alike && !seen.has(one.layout.label)) seen.set(one.layout.label, one);
      }
      const shown = [...seen.values()]; // in the order of the ranking
      const not = kvState.everyLayout(site).filter((layout) =>
        !seen.has(layout.label) &&
        kvCapacity.deploy(site, model, best.gpu, layout, best.weightFormat, best.kv, { later: true })
      );
      const plain = shown.filter((one) => one.layout.label === `tp${one.ranks}`);
      const other = [...plain, ...shown].find((one) => one !== best && one.layout !== best.layout);
      const why = other && !best.gpu.devices &&
        kvSizing.whyItWins(
          best,
          other,
          (one) => layoutWords[one.layout.label],
          (number) => plural(number, "GPU|GPUs"),
        );
      return make(
        "div",
        { class: "kv-multiples" },
        why
          ? make(
            "p",
            { class: "kv-note" },
            `${why} ${kvKernel.words.layout_order.replace("{factor}", String(kvKernel.CLOSE_STEPS))}`,
          )
          : null,
        ...shown.map((one) => {
          const share = Math.ceil(work.peak / one.replicas[1]);
          const figure = bars(one, kvKernel.replicasFor(share, one.layout.dp));
          $("figcaption", figure).replaceChildren(
            make("strong", {}, `${layoutWords[one.layout.label]}: ${plural(one.devices, "GPU|GPUs")}`),
            `, ${replicasOf(one, work)}, ${plural(one.each, "request|requests")} per replica, limited by ${
              kvKernel.words.limits[one.binds]
            }${one === best ? "." : one.sure ? "." : "; within the error of the estimate."} ${
              spare(one, work)
            }`,
          );
          figure.prepend($("figcaption", figure));
          if (one.layout === best.layout) figure.classList.add("kv-chosen");
          return figure;
        }),
        not.length
          ? make(
            "p",
            { class: "kv-note" },
            `Does not hold the workload on ${best.gpu.short}: ${
              not.map((layout) => layoutWords[layout.label]).join(", ")
            }.`,
          )
          : null,
      );
    }

    /* A note where a request takes longer than the latency that people and their requests in flight are counted from. */
    function late({ given, work }, best) {
      const { users, latency } = given.asked;
      const seconds = secondsOf(best, work);
      if (!users || !(seconds > latency)) return "";
      return make(
        "p",
        { class: "kv-note", "data-kv-late": "" },
        `At peak, a request takes about ${seconds.toFixed(1)} s on this deployment (prompt ${
          (best.ttft / work.efficiency).toFixed(1)
        } s, output ${count(work.output)} × ${
          (best.tpot / work.efficiency * 1e3).toFixed(1)
        } ms), longer than the end-to-end latency of ${latency} s. More requests are then in flight than this answer counts: enter a target per output token, or a latency of ${
          count(Math.ceil(seconds))
        } s.`,
      );
    }

    /* A note where prompts alone take most of the time of a replica, which no latency of one request counts. */
    function busy({ given, work }, best) {
      const { users, perMinute } = given.asked;
      const share = users * perMinute / 60 / best.replicas[1] * best.ttft / work.efficiency;
      if (!(share > 0.5)) return "";
      return make(
        "p",
        { class: "kv-note", "data-kv-busy": "" },
        `Prompts alone take ${
          Math.round(100 * share)
        }% of the time of each replica. Requests then last longer than this answer counts, so more replicas are needed. `,
        make("a", { href: new URL("traffic/", kvreport.root).href }, "Traffic"),
        " replays a load with its waiting times.",
      );
    }

    /* A number with its share of a whole as a bar, up to all of it. */
    function withBar(share) {
      const bar = make("span", { class: "kv-room" });
      bar.style.setProperty("--kv-share", `${Math.round(100 * Math.min(Math.max(share, 0), 1))}%`);
      return [`${Math.round(share * 100)}%`, bar];
    }

    /* Deployments that cost the same as the best one, and why it comes first. */
    function tie({ priced, listed }, best) {
      const many = listed.filter((one) => one.gpu !== best.gpu && one.devices === best.devices);
      if (!priced && many.length) {
        const names = many.slice(0, 6).map((one) => one.gpu.short);
        const last = names.length > 1 ? ` or ${names.pop()}` : "";
        return make(
          "p",
          { class: "kv-note", "data-kv-tie": "" },
          `${plural(best.devices, "GPU is|GPUs are")} also enough with ${
            names.join(", ")
          }${last}. With prices (under Advanced), the list is ranked by cost.`,
        );
      }
      const equal = priced ? listed.filter((one) => one !== best && one.price === best.price) : [];
      if (!equal.length) return "";
      const other = equal.find((one) => one.gpu !== best.gpu) || equal[0];
      const named = (one) => `${gpusOf(one, one.gpu.short)} (${layoutWords[one.layout.label]})`;
      const holds = (one) =>
        `${named(one)} ${/^\d/.test(gpusOf(one, one.gpu.short)) && one.devices > 1 ? "hold" : "holds"} ${
          plural(one.each * one.replicas[2], "request|requests")
        }, with ${gib(one.pool, 1)} GiB of KV pool and ${gib(one.weights, 1)} GiB of weights per GPU`;
      const reason = best.sure !== other.sure
        ? "it serves the peak even at the lower end of the error band"
        : best.memory < other.memory
        ? `it has less memory in total (${gib(best.memory, 0)} in place of ${gib(other.memory, 0)} GiB)`
        : best.devices < other.devices
        ? "it has fewer GPUs"
        : "it ranks first by speed and layout";
      return make(
        "p",
        { class: "kv-note", "data-kv-tie": "" },
        `Tie: ${[best, ...equal].map(named).join(" and ")} cost ${
          best.price.toFixed(2)
        } per hour each. The first is listed first because ${reason}. ${holds(best)}. ${holds(other)}.`,
      );
    }

    function sideBySide(best, work) {
      const columns = [
        ["On average", Math.ceil(work.concurrent), best.replicas[0]],
        [`At peak (× ${work.burst})`, work.peak, best.replicas[1]],
        [
          work.spares
            ? `With ${work.spares === 1 ? "one spare" : `${work.spares} spares`} (N+${work.spares})`
            : "Without spares",
          work.peak,
          best.replicas[2],
        ],
      ];
      const row = (title, value) => [title, ...columns.map(value)];
      return grid("", [best.gpu.name, ...columns.map(([title]) => title)], [
        row("Concurrent requests", ([, requests]) => count(requests)),
        row("Replicas", ([, , replicas]) => count(replicas)),
        row("GPUs", ([, , replicas]) => count(replicas * best.layout.devices)),
        row("Requests that fit", ([, , replicas]) => count(replicas * best.each)),
        row(
          "Headroom",
          ([, requests, replicas]) => withBar(kvKernel.headroom(replicas, best.each, requests)),
        ),
      ], { label: "Average, peak and spares" });
    }

    /* What the peak leaves of the KV pool. */
    function spare(one, work) {
      if (one.gpu.devices) return "";
      const share = kvKernel.replicasFor(Math.ceil(work.peak / one.replicas[1]), one.layout.dp);
      const used = Math.min(share * (one.request - one.shared), one.pool) + one.shared;
      const left = Math.max(one.pool - used, 0);
      return `Free at peak: ${gib(left, 1)} of ${gib(one.pool, 1)} GiB of KV pool per GPU (${
        one.pool > 0 ? Math.round((left / one.pool) * 100) : 0
      }%).`;
    }

    /* One bar of one GPU; of unequal ones, one for each rank that differs. */
    function bars(found, each) {
      if (!found.gpu.devices) return bar(found, each);
      const { layout, weightFormat, kv } = found;
      const own = found.stages.map((rank) => {
        const stage = layout.pp > 1 ? `, stage ${layout.places.indexOf(rank.place) + 1}` : "";
        const request = kvCapacity.reservedBytes(rank, found.mean);
        const part = {
          ...rank,
          weights: rank.resident,
          request,
          shared: kvKernel.sharedBytes(rank.terms, found.prefix),
        };
        const figure = bar(
          { ...part, weightFormat, kv, state: rank.heldConstant, total: rank.gpu.usable },
          each,
          `Memory of the ${rank.gpu.short}${stage}`,
        );
        $("figcaption", figure).textContent = `${rank.gpu.short}${stage}`;
        return figure;
      });
      return make("figure", { class: "kv-ranks" }, make("figcaption", {}), ...own);
    }

    function bar(best, each, title = "Memory of one GPU") {
      const used = Math.min(each * (best.request - best.shared), best.pool);
      const state = Math.min(each * best.state, used);
      return memoryBar(
        title,
        [
          ["weights", "weights", best.weights],
          ["cache", "KV cache at peak", used - state + best.shared],
          ["state", "recurrent states", state],
          ["reserve", "activations, graphs and runtime", best.reserve],
          ["free", "free pool", Math.max(best.pool - used - best.shared, 0)],
          [
            "free",
            "not used by the engine",
            Math.max(best.total - best.weights - best.reserve - best.pool, 0),
          ],
        ],
        best.total,
        "",
      );
    }

    /* The pool with the engine's own number of requests, which the other pages answer for, as the words before and after
       what it is; null where it is the same. */
    function usualPool({ site, model, work }, best) {
      const asks = { context: work.longest };
      const { gpu, layout, weightFormat, kv, pool } = best;
      const usual = !gpu.devices && kvCapacity.deploy(site, model, gpu, layout, weightFormat, kv, asks);
      if (!usual || usual.pool === pool) return null;
      const flag = kvKernel.words.serve[site.engine.family].max_seqs;
      const { users } = kvCapacity.serve(usual, work.mean);
      const when = `With the default ${flag} (${count(usual.seqs)}), for which the other pages answer`;
      return { when, users, pool: usual.pool };
    }

    /* The deployment of fewer GPUs that falls short by less than its error; null without one, and with targets of time. */
    function mayServe({ site, peaks, model, work }, best) {
      if (best.gpu.devices || work.tpot !== null || work.ttft !== null) return null;
      const few = kvState.everyLayout(site).filter((layout) =>
        kvCapacity.stands(best.gpu, layout) &&
        (layout.row || layout.devices <= layout.nodes * peaks.gpus[best.gpu.id].node) &&
        layout.devices * (1 + work.spares) < best.devices
      ).sort((a, b) => a.devices - b.devices);
      for (const layout of few) {
        const asks = { context: work.longest };
        const one = kvCapacity.deploy(site, model, best.gpu, layout, best.weightFormat, best.kv, asks);
        const held = one && Math.min(
          kvCapacity.mostServed(one, work.mean),
          kvCapacity.mostServed(one, work.longest) ? Infinity : 0,
        );
        if (held >= work.peak) {
          return { gpu: best.gpu, layout, devices: layout.devices * (1 + work.spares) };
        }
      }
      return null;
    }

    /* A note where a replica of the other pages serves another number of requests. */
    function elsewhere(answer, best) {
      const usual = usualPool(answer, best);
      if (!usual || usual.users === best.each) return "";
      const { mean, tpot, ttft } = answer.work;
      const why = tpot === null && ttft === null ? "" : ", without a latency target";
      const requests = plural(usual.users, "request|requests");
      return make(
        "p",
        { class: "kv-note", "data-kv-usual": "" },
        `Each replica here serves ${
          count(best.each)
        }, and its server is started for them. ${usual.when}, it serves ${requests} of ${
          count(mean)
        } tokens${why}.`,
      );
    }

    function arithmetic(answer, best, back) {
      const { work } = answer;
      const shared = best.shared
        ? `; ${gib(best.shared, 3)} GiB of that is the shared prefix, which is stored once for all requests`
        : "";
      const { layout } = best, usual = usualPool(answer, best);
      const held = kvKernel.replicasFor(work.peak, best.each) === best.replicas[1];
      const divisor = held
        ? count(best.each)
        : `${count(best.sureEach)} (for a pool that is smaller by the error)`;
      const lines = [
        `concurrent requests: ${+work.concurrent.toFixed(1)} × ${work.burst} = ${count(work.peak)} at peak`,
        `KV pool per GPU: the engine’s share (${best.gpu.share}) of ${gib(best.total)} GiB − ${
          gib(best.weights)
        } weights − ${gib(best.reserve)} activations, graphs and runtime (for at most ${
          count(Math.max(Math.floor(best.each / best.layout.dp), 1))
        } requests at once) = ${gib(best.pool)} GiB${
          usual
            ? `. ${usual.when}, it is ${gib(usual.pool)} GiB, for ${
              plural(usual.users, "request|requests")
            } of ${count(work.mean)} tokens`
            : ""
        }`,
        `one request of ${count(work.mean)} tokens holds ${gib(best.request, 3)} GiB per GPU${shared}`,
        `one replica (${layoutWords[layout.label]}) has room for ${
          plural(best.held, "such request|such requests")
        } and can run ${best.held === best.each && best.each > 1 ? "all " : ""}${
          count(best.each)
        } (limited by: ${kvKernel.words.limits[best.binds]})`,
        `replicas: ${count(work.peak)} / ${divisor} = ${best.replicas[1]} at peak, + ${work.spares} spare = ${
          best.replicas[2]
        }`,
        `GPUs: ${best.replicas[2]} × ${layout.devices} = ${best.devices}`,
      ];
      if (!Number.isNaN(best.tpot)) {
        lines.push(
          `a decode step with ${count(back.share)} requests takes at least ${
            (best.tpot * 1e3).toFixed(1)
          } ms, about ${(best.tpot / work.efficiency * 1e3).toFixed(1)} ms at ${
            Math.round(work.efficiency * 100)
          }% of the peak rates`,
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
        `smallest KV pool that holds the peak: ${gib(back.pool)} GiB per GPU${
          back.utilization === null
            ? ""
            : `, a memory share of ${back.utilization} (${kvKernel.words.serve.vllm.utilization})`
        }`,
      );
      if (back.fractions) {
        lines.push(
          `${kvKernel.words.serve.sglang.utilization}: ${back.fractions.lowest} to ${back.fractions.highest} (the names and limits of SGLang)`,
        );
      }
      lines.push(
        `longest context that all of these requests could have at once: ${count(back.longest)} tokens`,
      );
      return lines;
    }

    function ranked(listed, answer) {
      const { priced, site, work } = answer;
      const alone = new Set(listed.map((one) => one.gpu.id)).size === 1;
      const up = new URL("../", location.href);
      const formats = (one) => formatOf(site.weight_formats, one.weightFormat);
      /** @type {[string, (one: any) => any, boolean][]} */
      const prices = priced
        ? [
          ["Price per hour", (one) => one.price.toFixed(2), true],
          ["Price per million output tokens", (one) =>
            kvSizing.pricePerMillion(one, work)?.toFixed(2) ?? "unknown", true],
        ]
        : [];
      /** @type {[string, (one: any) => any, boolean][]} */
      const every = [
        ["GPUs", (one) => count(one.devices), true],
        ["Replicas × GPUs", (one) => `${one.replicas[2]} × ${one.layout.devices}`, true],
        ["Layout", (one) => layoutWords[one.layout.label], false],
        ["Requests per replica", (one) => `${count(one.each)}${one.sure ? "" : " (tight)"}`, true],
        ["Headroom", (one) => withBar(one.headroom), true],
        ["Memory", (one) => gib(one.memory, 0), true],
        ...prices,
        ["Weights", formats, false],
        ["KV cache", (one) => formatOf(site.kv_formats, one.kv), false],
        ["Limited by", (one) => kvKernel.words.limits[one.binds], false],
      ];
      const shown = listed.slice(0, 20);
      // What is the same in every row is said once: on a phone these columns are out of sight.
      const told = ["Weights", "KV cache", "Limited by"];
      const same = every.filter(([title, value]) =>
        shown.length > 1 && told.includes(title) && new Set(shown.map(value)).size === 1
      );
      const columns = every.filter((one) => !same.includes(one));
      const common = same.map(([title, value]) => `${title}: ${value(shown[0])}`).join("; ");
      const numeric = [false, ...columns.map(([, , number]) => number)];
      const cell = (one, title, value) =>
        title === "Memory"
          ? make("td", { class: "kv-num kv-size", "data-value": one.memory }, value(one))
          : value(one);
      const name = ({ gpu }) =>
        gpu.devices ? gpu.short : make("a", { href: new URL(`gpus/${gpu.id}/`, up).href }, gpu.short);
      const heads = columns.map(([title]) =>
        title === "Memory" ? [title, make("span", { class: "kv-unit kv-gib" }, "GiB")] : title
      );
      const what = alone
        ? `The best deployment of each layout on ${listed[0].gpu.short}`
        : `The best deployment on each of ${plural(listed.length, "GPU type|GPU types")}${
          answer.alike ? "" : ", commonly rented ones first"
        }`;
      return grid(
        `${what}${
          listed.length > 20 ? "; the first 20 are shown" : ""
        }. Headroom is the spare capacity above the peak load, as a percentage of that load.${
          common && ` In every row: ${common}.`
        }${
          priced
            ? ` The price of a million output tokens is for the average load. It includes the prompts, spares and idle time, and ${
              work.latency === null
                ? `requests as fast as ${Math.round(100 * work.efficiency)}% of the bounds`
                : "the end-to-end latency that you entered"
            }.`
            : ""
        }`,
        ["GPU", ...heads],
        shown.map((one) => [name(one), ...columns.map(([title, value]) => cell(one, title, value))]),
        { label: "Deployments, best first", numeric: (n) => numeric[n] },
      );
    }

    function json(answer, best, back, commands) {
      const { site, model, work, assumed, listed } = answer;
      const one = (found) => ({
        gpu: found.gpu.id,
        devices: found.devices,
        tensor_parallel: found.layout.tp,
        layout: found.layout.label,
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
        price_per_million_output_tokens: kvSizing.pricePerMillion(found, work),
        tpot_lower_bound_s: Number.isNaN(found.tpot) ? null : found.tpot,
        ttft_lower_bound_s: Number.isNaN(found.ttft) ? null : found.ttft,
      });
      return {
        model: model.id,
        engine: site.engine.name,
        release: site.release,
        link: kvreport.address(),
        workload: work,
        assumptions: answer.alike ? assumed : [...assumed, NO_GPU],
        deployments: listed.slice(0, 20).map(one),
        best: {
          ...one(best),
          smallest_pool_bytes: back.pool,
          smallest_utilization: back.utilization,
          mem_fraction_static: back.fractions,
          longest_context_tokens: back.longest,
          commands,
        },
      };
    }

    function markdown(answer, best, lines, commands) {
      const { model, work, listed, given, site } = answer;
      const cell = (text) => String(text).replace(/\|/g, "\\|");
      return [
        `## ${questionOf(given.asked, work, model.name)}`,
        "",
        `**${gpusOf(best, best.gpu.name)}** (${replicasOf(best, work)}), ${
          layoutWords[best.layout.label]
        }, weights ${formatOf(site.weight_formats, best.weightFormat).toLowerCase()}, KV cache ${
          formatOf(site.kv_formats, best.kv)
        }.`,
        "",
        ...lines.map((line) => `- ${line}`),
        "",
        "| GPU | GPUs | Replicas × GPUs | Layout | Requests per replica | Memory (GiB) |",
        "| --- | ---: | ---: | --- | ---: | ---: |",
        ...listed.slice(0, 10).map((one) =>
          `| ${cell(one.gpu.name)} | ${one.devices} | ${one.replicas[2]} × ${one.layout.devices} | ${
            layoutWords[one.layout.label]
          } | ${one.each} | ${gib(one.memory, 0)} |`
        ),
        "",
        ...Object.values(commands).filter(Boolean).flatMap((text) => ["```sh", text, "```"]),
        "",
        assumedIn(answer).trim(),
        `${site.engine.label}, data ${site.release}: ${kvreport.address()}`,
        "",
      ].join("\n");
    }

    function write(replace) {
      const state = {};
      for (const name of names) {
        const value = values.get(name);
        if (value !== start[name]) state[name] = value === "" ? "none" : value;
      }
      mark();
      writeState(state, replace);
    }

    /* Which workload the fields are those of. */
    function mark() {
      for (const chip of $$("[data-preset]", form)) {
        chip.setAttribute("aria-pressed", String(!otherThan(presetOf(chip)).length));
      }
    }

    const presetOf = (chip) =>
      Object.fromEntries(chip.dataset.preset.split(" ").map((pair) => pair.split("=")));
    const PRESET = [...LENGTHS, ...NUMBERS].filter((name) => name !== "available" && name !== "efficiency");
    const PEOPLE = ["users", "rate", "latency"];
    const otherThan = (asked) => PRESET.filter((name) => values.get(name) !== (asked[name] ?? ""));

    /* What the reader typed: where the fields differ from the nearest workload, or from the form as it was printed. */
    const ownFields = () =>
      [start, ...$$("[data-preset]", form).map(presetOf)].map(otherThan)
        .reduce((few, one) => (one.length < few.length ? one : few));

    let first = true;
    async function restore() {
      catalog ||= await kvreport.facts(base).catch(() => null);
      const named = new URLSearchParams(location.search).get("gpu"); // unequal ones have a name in no list
      const machine = catalog && named && kvCapacity.gpuOf(catalog, named);
      const ids = {
        model: catalog?.models.map(([slug]) => slug),
        gpu: catalog && [...catalog.gpus.map((gpu) => gpu.id), ...(machine ? [named] : [])],
      };
      const known = Object.fromEntries(names.map((name) => [
        name,
        name in ids
          ? ids[name] && [...ids[name], "none"]
          : fields[name].options
          ? [...Array.from(fields[name].options, (option) => option.value), "none"]
          : null,
      ]));
      const { state, ignored } = readState(known);
      // What was typed before the page could answer stays.
      const early = first
        ? Object.keys(fields).filter((name) => fields[name].value.trim() !== start[name])
        : [];
      first = false;
      for (const name of names) {
        if (early.includes(name)) continue;
        const asked = machine && name === "gpu" ? machine.id : state[name]?.[0];
        values.set(name, asked === "none" ? "" : asked ?? start[name]);
      }
      if (state.users && !state.concurrent) complete("users"); // a link says the people, and not all that goes with them
      // Requests of nobody in particular last as long as the answer's own take.
      const settling = state.users?.[0] === "1" && !state.latency && !secondsWanted() ? 5 : 0;
      const hidden = Object.keys(state).some((name) => fields[name] && advanced.contains(fields[name]));
      if (hidden) advanced.open = true;
      if (early.length) write(true);
      mark();
      await show(ignored, settling);
      // On a phone the form fills the screen: what a link asks is answered first.
      if (location.search && !scrollY && innerWidth < 768) {
        $(".kv-big", box)?.scrollIntoView({ block: "center" });
      }
    }

    const typed = debounce((name) => {
      complete(name);
      write(true);
      show();
    }, 120);
    for (const [name, field] of Object.entries(fields)) {
      field.addEventListener(
        "input",
        field.options
          ? () => {
            write();
            show();
          }
          : () => typed(name),
      );
    }
    form.addEventListener("submit", (event) => event.preventDefault());
    $("[data-kv-any]", form).addEventListener("click", () => {
      values.set("gpu", "");
      write();
      show();
    });
    for (const chip of $$("[data-preset]", form)) {
      chip.addEventListener("click", () => {
        const asked = presetOf(chip), own = ownFields();
        const requests = own.includes("concurrent") && values.get("concurrent");
        const people = own.includes("users") && values.get("users");
        for (const name of PRESET) {
          const idle = (requests && PEOPLE.includes(name)) || (people && name === "concurrent");
          if (!own.includes(name)) values.set(name, idle ? "" : asked[name] ?? "");
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
