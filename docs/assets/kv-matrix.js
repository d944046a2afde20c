/* The matrix in the browser, put together from the files of downloads/v1/explore/ as they are needed, and
   evaluated for what filters leave. No page here: a test holds it equal to the models' own files. */
(function (root) {
  "use strict";

  const kernel = root.kvKernel;
  const { configure, answer, deploy, serve, told, stands, demandOf, underEngine, unpacked } = root.kvCapacity;
  const SLICE_MS = 10; /* longest stretch of work between two looks at the page */

  const NOTHING = Object.freeze([]);
  const LATER = Object.freeze({ later: true }); /* the longest context is asked for where it is shown */

  /* Of a layout: its columns' folders, and whether one configuration times nothing is its answer. */
  const isTensorOnly = (layout) => layout.devices === layout.tp && !layout.ep && layout.dcp === 1;
  const foldersOf = (layout) => {
    const name = isTensorOnly(layout) ? String(layout.tp) : layout.label;
    return layout.places.map((_, stage) => (layout.pp > 1 ? `${name}-${stage + 1}` : name));
  };
  const isOne = (layout) => layout.places.length === 1 && layout.dp === 1;

  /* --- the files of all tensor-parallel sizes in one: see kvreport.publish.tensor_size_deltas ------------------------- */

  /* Columns out of the first, and of what each further one has more than the one before. */
  const summed = (columns) =>
    columns.reduce((done, column, n) => {
      const before = done[n - 1];
      const whole = (more, m) => (more === null || before[m] === null ? more : before[m] + more);
      return [...done, n ? column.map(whole) : column];
    }, []);

  /* Weights out of those of the first size, and of what ranks copy. */
  function divided([alone, copied, ...others], sizes) {
    const [first, second, ...more] = sizes;
    const pair = copied.map((bytes, m) =>
      bytes === null || alone[m] === null ? bytes : (bytes + first * alone[m]) / second
    );
    const further = others.map((column, n) =>
      column.map((bytes, m) => {
        if (bytes === null || alone[m] === null || pair[m] === null) return bytes;
        const extra = (bytes + copied[m] * (more[n] - first)) / (second - first);
        return (extra + first * alone[m]) / more[n];
      })
    );
    return [alone, pair, ...further];
  }

  const smaller = (times) => ([block, kept, constant, terms]) => [
    block / times,
    kept,
    constant / times,
    terms.map(([bytes, ...rest]) => [bytes / times, ...rest]),
  ];

  function plansOf(columns, sizes) {
    const done = [];
    columns.forEach((column, n) => {
      done.push(column.map((plans, m) => {
        if (Array.isArray(plans)) return plans;
        if (plans < 0) return done[-1 - plans][m];
        return done[plans - 1][m].map(smaller(sizes[n] / sizes[plans - 1]));
      }));
    });
    return done;
  }

  /* Rates out of those of the first size, and of the fields that others have otherwise. */
  const ratesOf = ([first, ...others]) => [
    first,
    ...others.map((column) =>
      column.map((own, n) => (own === null || Array.isArray(own) ? own : Object.assign([...first[n]], own)))
    ),
  ];

  /* Columns out of their different entries, and of which of them each model has. */
  const spread = ({ each, of }, sizes) => sizes.map((_, n) => of.map((place) => each[place][n]));

  /* The file of each size, by what files of a group have. */
  const APART = {
    weights: ({ weights }, sizes) => divided(weights, sizes).map((list) => ({ weights: list })),
    added: ({ added }) => summed(added).map((list) => ({ added: list })),
    cache: ({ plans, plan }, sizes) => {
      const placed = spread(plan, sizes);
      return plansOf(spread(plans, sizes), sizes).map((list, n) => ({ plans: list, plan: placed[n] }));
    },
    reserve: ({ reserve, spared, rates }, sizes) => {
      const more = summed(spread(spared, sizes)), every = ratesOf(spread(rates, sizes));
      return summed(spread(reserve, sizes)).map((list, n) => ({
        reserve: list,
        spared: more[n],
        rates: every[n],
      }));
    },
  };

  /**
   * Open the matrix.
   * @param {(name: string) => Promise<any>} get Fetches a file of the folder by its name.
   * @param {any} packed explore/site.json, or explore/facts.json as kvreport.facts has it
   * @param {any} common explore/models.json, with explore/traits.json where these are asked for
   */
  function open(get, packed, common) {
    const site = unpacked(packed, packed.models);
    const models = site.models.map(([slug, name], n) => ({
      slug,
      name,
      id: slug.replace("--", "/"),
      place: n,
      ...Object.fromEntries(Object.entries(common).map(([key, list]) => [key, list[n]])),
      aliases: NOTHING,
      weights: {},
      loaded: {},
      plans: [],
      plan: {},
      held: {},
      reserve: [],
      following: {},
      times: null,
    }));
    const kinds = 1 + Math.max(...site.gpus.map((gpu) => gpu.kind));
    const fetched = new Map();
    const folders = site.layouts.flatMap(foldersOf);
    const stages = new Set(site.layouts.flatMap((layout) => (layout.pp > 1 ? layout.places : NOTHING)));
    const at = (group, name, size) => {
      const list = (group[name] ||= site.sizes.map(() => null));
      return (value) => {
        list[size] = value;
      };
    };

    /* A weight format by its name, or the one that a model's page takes. */
    const ownOr = (form, model) => (form === "own" ? model.form : form);

    const readers = {
      weights: (size, form, packed) =>
        models.forEach((model, n) => {
          at(model.weights, ownOr(form, model), size)(packed.weights[n]);
        }),
      added: (size, name, packed) => {
        const cut = name.lastIndexOf("-"), form = name.slice(0, cut), number = Number(name.slice(cut + 1));
        const alike = site.gpus.filter((gpu) => gpu.loading === number).map((gpu) => gpu.kind);
        models.forEach((model, n) => {
          const list = (model.loaded[ownOr(form, model)] ||= []);
          list[size] ||= new Array(kinds).fill(null);
          for (const kind of alike) list[size][kind] = packed.added[n];
        });
      },
      cache: (size, cache, packed) =>
        models.forEach((model, n) => {
          const name = cache === "own" ? model.kv : cache;
          if (packed.plan[n] === null || model.plan[name]?.[size]) return;
          const first = model.plans.length;
          model.plans.push(...packed.plans[n]);
          const moved = (index) => (index < 0 ? index : index + first);
          const row = packed.plan[n];
          at(model.plan, name, size)(
            Array.isArray(row) ? row.map(moved) : new Array(kinds).fill(moved(row)),
          );
        }),
      held: (size, cache, packed) =>
        models.forEach((model, n) => {
          const name = cache === "own" ? model.kv : cache;
          if (packed.held[n] !== null) at(model.held, name, size)(packed.held[n]);
        }),
      reserve: (size, number, packed) => {
        const [share, least] = site.gpus.find((gpu) => gpu.reserve === number).band.slice(
          stages.has(size) ? -2 : 0,
        );
        models.forEach((model, n) => {
          const bytes = packed.reserve[n];
          const more = packed.spared[n] || 0;
          at(model.following, number, size)(packed.rates[n] || null);
          at(model.reserve, number, size)(
            bytes === null ? null : [bytes, kernel.errorBytes(share, least, bytes) + more],
          );
        });
      },
    };

    /* Fetch a file once and let its reader spread it over the models. */
    function part(name, read) {
      if (!fetched.has(name)) {
        const coming = get(name).then((packed) => {
          read(packed);
          fetched.get(name).done = true;
        });
        fetched.set(name, coming);
        coming.catch(() => fetched.delete(name));
      }
      return fetched.get(name);
    }

    const sized = (group, size, name) =>
      part(
        `${folders[size]}/${group}-${name}`,
        (packed) => readers[group](size, name, packed),
      );

    const ready = (name) => Boolean(fetched.get(name)?.done);

    /* The columns of the layouts of a choice, whose `sizes` are places of site.layouts. */
    const columnsOf = (choice) => choice.sizes.flatMap((place) => site.layouts[place].places);

    /* The weight formats of a choice in a layout: further layouts are of checkpoints as released, as in the matrix. */
    const formsOf = (choice, layout) =>
      isTensorOnly(layout)
        ? choice.forms
        : choice.forms.filter((form) => form === site.weight_formats[0].name);
    const weightsOf = (choice) =>
      choice.sizes.map((place) => site.layouts[place]).flatMap((layout) =>
        layout.places.flatMap((size) => formsOf(choice, layout).map((form) => [size, form]))
      );

    /* The names of the files that a choice needs. */
    function partsOf(choice) {
      const classes = [...new Set(choice.gpus.map((gpu) => gpu.reserve))];
      const loading = [...new Set(choice.gpus.map((gpu) => gpu.loading))];
      return weightsOf(choice).flatMap(([size, form]) => [
        ["weights", size, form],
        ...loading.map((number) => ["added", size, `${form}-${number}`]),
      ]).concat(
        columnsOf(choice).flatMap((size) => [
          ...choice.caches.map((cache) => ["cache", size, cache]),
          ...classes.map((number) => ["reserve", size, number]),
        ]),
      );
    }

    const fileOf = ([group, size, name]) => `${folders[size]}/${group}-${name}`;

    /* Fetch parts: where each tensor-parallel size is wanted and none is there, the file that has all of them. */
    function fetchAll(parts) {
      const wanted = new Set(parts.map(fileOf));
      for (const [group, size, name] of site.sizes.length > 1 ? parts : NOTHING) {
        const each = site.sizes.map((_, n) => fileOf([group, n, name]));
        if (size > 0 || !each.every((one) => wanted.has(one) && !fetched.has(one))) continue;
        const coming = get(`tensor/${group}-${name}`).then((packed) => {
          APART[group](packed, site.sizes).forEach((one, n) => readers[group](n, name, one));
          fetched.get(each[0]).done = true; // they have the same promise
        });
        for (const one of each) fetched.set(one, coming);
        coming.catch(() => each.forEach((one) => fetched.delete(one)));
      }
      return Promise.all(parts.map(([group, size, name]) => sized(group, size, name)));
    }

    const need = (choice) => fetchAll(partsOf(choice));

    const has = (choice) => partsOf(choice).every((one) => ready(fileOf(one)));

    /* What the upper bound and the bytes per token are made of; rows made before do not have them. */
    const bounds = (choice) =>
      Promise.all(
        columnsOf(choice).flatMap((size) => choice.caches.map((cache) => sized("held", size, cache))),
      );
    const hasBounds = (choice) =>
      columnsOf(choice).every((size) =>
        choice.caches.every((cache) => ready(`${folders[size]}/held-${cache}`))
      );

    const aliases = () =>
      part("aliases", (packed) => {
        models.forEach((model, n) => {
          model.aliases = [packed.family[n], ...packed.aliases[n]];
        });
      });

    /* What decode steps demand, and the accelerators' rates, for the column of speeds. */
    let peaks = null;
    async function speed(choice, getPeaks) {
      peaks ||= await getPeaks();
      await Promise.all(
        columnsOf(choice).map((size) =>
          part(`${folders[size]}/speed`, (packed) => {
            models.forEach((model, n) => {
              model.times ||= {
                experts: packed.experts[n],
                reduced: packed.reduced[n],
                attention: {},
                state: [],
                weights: {},
                reach: {},
              };
              const { times } = model;
              times.state[size] = packed.state[n];
              for (const [form, list] of Object.entries(packed.weights)) {
                at(times.weights, form, size)(list[n]);
              }
              for (const [cache, list] of Object.entries(packed.reach)) at(times.reach, cache, size)(list[n]);
              for (const [cache, list] of Object.entries(packed.attention)) times.attention[cache] = list[n];
            });
          })
        ),
      );
    }

    /* Lower bound of a decode step of all requests that run, in seconds; NaN where not known. */
    function decodeSeconds(row) {
      const { config, context, users } = row;
      const { model } = config;
      const { layout } = config;
      if (!peaks || users < 1 || typeof model.times?.state[layout.places[0]] !== "number") return NaN;
      return kernel.decodeSeconds(
        demandOf(
          model.times,
          peaks.gpus[config.gpu.id],
          config.weightFormat,
          config.kvFormat,
          layout.places[0],
          layout.tp,
        ),
        kernel.microBatch(users, layout.dp, layout.pp),
        context,
      );
    }

    /* What the files of this engine evaluate to, with the fetching that a choice takes. */
    const own = { need, has, bounds, hasBounds };

    /* The same models under another engine, or with scheduler sizes that are not the default: what the engine decides
       comes from one file with all models, and reserves that no rates give from one of each class of devices; weights
       and what the architecture needs are those of this matrix. */
    const engines = new Map();
    function under(name) {
      const other = name !== site.engine.name;
      const file = (path) => get(`../engines/${path}`);
      if (!engines.has(name)) {
        const coming = Promise.all([other ? file(name) : null, file(`${name}/models`)]).then(
          ([shared, decided]) => {
            const here = shared ? underEngine(site, shared) : site;
            const listed = shared ? shared.reserves : NOTHING;
            const empty = () => shared && { reserve: Object.fromEntries(listed.map((n) => [n, NOTHING])) };
            const these = models.filter((model) => decided[model.slug]).map((model) =>
              Object.assign(
                Object.create(model),
                { following: null, ...empty() },
                decided[model.slug],
              )
            );
            return evaluated(here, these, shared ? decidedElsewhere(name, these, listed) : own);
          },
        );
        engines.set(name, coming);
        coming.catch(() => engines.delete(name));
      }
      return engines.get(name);
    }

    const everyCache = (choice) => ({
      ...choice,
      caches: choice.caches.includes("own") ? site.kv_formats.map((one) => one.name) : choice.caches,
    });
    function decidedElsewhere(name, models, listed) {
      const file = (number) => `../engines/${name}/reserve-${number}`;
      const classes = (choice) => {
        const asked = choice.gpus.flatMap((gpu) => (gpu.devices || [gpu]).map((one) => one.reserve));
        return [...new Set(asked)].filter((number) => listed.includes(number));
      };
      const reserves = (number) =>
        part(file(number), (packed) =>
          models.forEach((model, n) => {
            model.reserve[number] = packed.reserve[n];
          }));
      return {
        need: (choice) =>
          Promise.all([
            fetchAll(weightsOf(choice).map(([size, form]) => ["weights", size, form])),
            ...classes(choice).map(reserves),
          ]),
        has: (choice) =>
          weightsOf(choice).every(([size, form]) => ready(`${folders[size]}/weights-${form}`)) &&
          classes(choice).every((number) => ready(file(number))),
        bounds: (choice) => bounds(everyCache(choice)),
        hasBounds: (choice) => hasBounds(everyCache(choice)),
      };
    }

    /* Rows of models under one engine. */
    function evaluated(site, models, fetching) {
      /* The caches of a model that a choice names; "own" is its default. */
      const cachesOf = (model, caches) =>
        caches.includes("own") && !caches.includes(model.kv) ? [model.kv, ...caches] : caches;

      /* Every configuration of a choice that the engine can be asked for, in order; contexts are left out. */
      function* configurations(choice) {
        for (const place of choice.sizes) {
          const layout = site.layouts[place];
          const [size] = layout.places;
          for (const model of choice.models) {
            for (const form of formsOf(choice, layout)) {
              if (!model.weights[form]?.[size]) continue;
              for (const cache of cachesOf(model, choice.caches)) {
                const kinds = model.plan[cache]?.[size];
                if (!kinds) continue;
                for (const gpu of choice.gpus) {
                  if (kinds[gpu.kind] >= 0 && stands(gpu, layout)) yield [model, gpu, layout, form, cache];
                }
              }
            }
          }
        }
      }

      /* Accelerators for which the files of this engine have no numbers. */
      const unpublished = (gpus) =>
        gpus.filter((gpu) => !models.some((model) => root.kvCapacity.isPublished(model, gpu)));

      /* How many rows a choice has, without evaluating them. */
      function rowsOf(choice) {
        let found = 0;
        for (const _ of configurations(choice)) found += 1;
        return found * choice.contexts.length;
      }

      /* The rows of a choice. */
      function* rows(choice) {
        for (const [model, gpu, layout, form, cache] of configurations(choice)) {
          const alone = isOne(layout);
          const config = alone
            ? configure(site, model, gpu, layout.places[0], form, cache, true)
            : deploy(site, model, gpu, layout, form, cache, LATER);
          if (!config) continue;
          config.layout = layout;
          for (const context of choice.contexts) {
            const here = told(config, context);
            yield { ...(alone ? answer(here, context) : serve(here, context)), config: here, context };
          }
        }
      }

      return { site, models, ...fetching, aliases, speed, decodeSeconds, unpublished, rowsOf, rows, under };
    }

    return evaluated(site, models, own);
  }

  const serves = (row) => row.users > 0 && kernel.words.serving_verdicts.includes(row.verdict);

  /**
   * Evaluate many rows in slices, so that the page stays awake: {rows, total, fit}; `rows` are the best by
   * `order`, at most `most` of them. `progress` is told the numbers so far; `alive` says whether to go on.
   */
  async function collect(source, wanted, order, most, progress, alive) {
    let rows = [], total = 0, fit = 0, until = performance.now() + SLICE_MS;
    for (const row of source) {
      total += 1;
      if (wanted(row)) {
        if (serves(row)) fit += 1;
        rows.push(row);
        if (rows.length >= 2 * most) rows = rows.sort(order).slice(0, most);
      }
      if (total % 4 === 0 && performance.now() > until) {
        await new Promise((done) => setTimeout(done));
        if (!alive()) return null;
        progress(total, fit);
        until = performance.now() + SLICE_MS;
      }
    }
    return { rows: rows.sort(order).slice(0, most), total, fit };
  }

  /* Verdicts of combinations that the engine refuses: no configuration is counted or listed for them. */
  const REFUSED = ["engine_does_not_run", "format_not_supported"];

  root.kvMatrix = { open, collect, serves, REFUSED };
})(typeof globalThis === "object" ? globalThis : this);
