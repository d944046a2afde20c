/* SQL over the published Parquet file: DuckDB in a worker, started on a click. A result comes back as CSV, so that
   nothing here reads a binary format. The worker fetches the parts of the Parquet file that a query needs. */
(function (root) {
  "use strict";

  const HTTP = 4, ROWS = 200;
  let started = null;

  /* One worker for the page. `tell` is told what is going on: (words, done, all). */
  function start(folder, parquet, tell) {
    started ||= boot(folder, parquet, tell).catch((error) => {
      started = null;
      throw error;
    });
    return started;
  }

  async function boot(folder, parquet, tell) {
    const manifest = await (await answered(new URL("manifest.json", folder))).json();
    const file = manifest.files.find((one) => one.name.endsWith(".wasm"));
    const packed = await fetched(new URL(file.file, folder), file, tell);
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const module = await new Response(stream).arrayBuffer();
    tell("Starting DuckDB");
    const worker = new Worker(new URL(manifest.worker, folder));
    const call = caller(worker);
    const address = URL.createObjectURL(new Blob([module], { type: "application/wasm" }));
    try {
      await call("INSTANTIATE", [address, null]);
    } finally {
      URL.revokeObjectURL(address);
    }
    await call("OPEN", { path: ":memory:", filesystem: { allowFullHTTPReads: true } });
    const connection = await call("CONNECT", null);
    await register(call, parquet, tell);
    await call("RUN_QUERY", [connection, "CREATE VIEW capacity AS SELECT * FROM 'capacity.parquet'"]);
    let asked = 0;
    return {
      version: manifest.version,
      /* The result of a query as a text of CSV. */
      async query(text) {
        const name = `result-${asked++}.csv`;
        const inner = text.trim().replace(/;+\s*$/, "");
        await call("REGISTER_FILE_BUFFER", [name, new Uint8Array(0)]);
        await call("RUN_QUERY", [connection, `COPY (${inner}\n) TO '${name}' (FORMAT CSV, HEADER)`]);
        const content = await call("COPY_FILE_TO_BUFFER", name);
        await call("DROP_FILE", name).catch(() => {});
        return new TextDecoder().decode(content);
      },
    };
  }

  /* The Parquet file, in parts where the server sends parts, else as a whole. */
  async function register(call, parquet, tell) {
    const answer = await answered(parquet, { headers: { Range: "bytes=0-3" } });
    if (answer.status === 206) {
      await answer.arrayBuffer();
      return call("REGISTER_FILE_URL", ["capacity.parquet", parquet, HTTP, false]);
    }
    const content = await read(
      answer,
      "Loading the Parquet file",
      Number(answer.headers.get("Content-Length")),
      tell,
    );
    return call("REGISTER_FILE_BUFFER", ["capacity.parquet", new Uint8Array(content)]);
  }

  /* A function that asks the worker and waits for its answer. */
  function caller(worker) {
    const waiting = new Map();
    let number = 0;
    worker.onmessage = ({ data }) => {
      const one = waiting.get(data.requestId);
      if (!one || data.type === "INSTANTIATE_PROGRESS") return;
      waiting.delete(data.requestId);
      if (data.type === "ERROR") one.failed(new Error(data.data.message));
      else one.done(data.data);
    };
    worker.onerror = (event) => {
      waiting.forEach((one) => one.failed(new Error(event.message || "DuckDB did not start")));
      waiting.clear();
    };
    return (type, data) =>
      new Promise((done, failed) => {
        waiting.set(++number, { done, failed });
        worker.postMessage({ messageId: number, type, data });
      });
  }

  async function answered(address, options) {
    const answer = await fetch(address, options);
    if (!answer.ok) throw new Error(`the server answers ${answer.status} for ${address}`);
    return answer;
  }

  /* The content of an answer, with its progress told. */
  async function read(answer, words, all, tell) {
    const reader = answer.body.getReader(), parts = [];
    let done = 0;
    for (;;) {
      const { value, done: ended } = await reader.read();
      if (ended) break;
      parts.push(value);
      done += value.length;
      tell(words, done, all);
    }
    return new Blob(parts).arrayBuffer();
  }

  /* A file of the manifest, compared with its digest. */
  async function fetched(address, file, tell) {
    const content = await read(await answered(address), "Loading DuckDB", file.bytes, tell);
    const digest = await crypto.subtle.digest("SHA-256", content);
    const hex = Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
    if (hex !== file.sha256) throw new Error(`${file.file} is not the file that this site was built with`);
    return content;
  }

  /* The rows of a CSV text, each a list of cells. */
  function cells(text) {
    const rows = [[""]];
    let quoted = false;
    for (let i = 0; i < text.length; i++) {
      const sign = text[i], row = rows[rows.length - 1];
      if (quoted && sign === '"' && text[i + 1] === '"') i++;
      else if (sign === '"') {
        quoted = !quoted;
        continue;
      } else if (!quoted && sign === ",") {
        row.push("");
        continue;
      } else if (!quoted && (sign === "\n" || sign === "\r")) {
        if (sign === "\n") rows.push([""]);
        continue;
      }
      row[row.length - 1] += sign;
    }
    return rows.filter((row) => row.length > 1 || row[0] !== "");
  }

  /* The field, its button and its answer. `place` has the folder, `parquet` the address of the data. */
  function panel(folder, parquet) {
    const { make, count, plural } = root.kvreport;
    const field = make("textarea", {
      rows: 9,
      spellcheck: "false",
      "aria-describedby": "kv-sql-help",
      class: "kv-sqltext",
    });
    const button = make(
      "button",
      { type: "button", class: "kv-button kv-primary", onclick: run },
      "Run in this page",
    );
    const save = make(
      "button",
      {
        type: "button",
        class: "kv-button",
        hidden: true,
        onclick: () => kvreport.save(text, "text/csv", "kvreport-query.csv"),
      },
      "Download as CSV",
    );
    const progress = make("progress", { max: 1, hidden: true });
    const said = make("p", { class: "kv-said", "aria-live": "polite" });
    const table = make("table", { class: "kv-table", id: "sql-table" });
    const scroll = make(
      "div",
      {
        class: "kv-scroll",
        "data-kv-own-csv": "",
        role: "region",
        "aria-label": "Result of the query",
        hidden: true,
      },
      table,
    );
    let text = "", answers = 0;

    function tell(words, done, all) {
      progress.hidden = false;
      if (all) progress.value = done / all;
      else progress.removeAttribute("value");
      said.textContent = all ? `${words}: ${(done / 1e6).toFixed(1)} of ${(all / 1e6).toFixed(1)} MB` : words;
    }

    async function run() {
      button.disabled = true;
      try {
        const duck = await start(folder, parquet, tell);
        tell("Running the query");
        const began = performance.now();
        text = await duck.query(field.value);
        show(cells(text), performance.now() - began, duck.version);
      } catch (error) {
        save.hidden = scroll.hidden = true;
        said.textContent = `The query failed: ${error.message}`;
      } finally {
        button.disabled = false;
        progress.hidden = true;
        said.dataset.kvAnswers = String(++answers); // that this run has ended
      }
    }

    function show([head = [], ...rows], took, version) {
      const numeric = head.map((_, n) =>
        rows.length > 0 && rows.every((row) => row[n] === "" || !isNaN(Number(row[n])))
      );
      const cell = (tag, value, n) =>
        make(tag, { class: numeric[n] ? "kv-num" : null, ...(tag === "th" ? { scope: "col" } : {}) }, value);
      table.replaceChildren(
        make("thead", {}, make("tr", {}, ...head.map((name, n) => cell("th", name, n)))),
        make(
          "tbody",
          {},
          ...rows.slice(0, ROWS).map((row) => make("tr", {}, ...row.map((value, n) => cell("td", value, n)))),
        ),
      );
      scroll.hidden = !head.length;
      save.hidden = !rows.length;
      const more = rows.length > ROWS ? `, the first ${ROWS} shown` : "";
      said.textContent = `${plural(rows.length, "row|rows")}${more}. DuckDB ${version}, ${
        count(Math.round(took))
      } ms.`;
    }

    const node = make(
      "div",
      { class: "kv-sql" },
      make("label", { class: "kv-config" }, "Query (SQL)", field),
      make(
        "small",
        { id: "kv-sql-help" },
        "One SELECT over the table capacity, in DuckDB's dialect. DuckDB (4 MB) is loaded on the first run. Only the parts of the file that a query needs are fetched.",
      ),
      make("p", { class: "kv-actions" }, button, save, progress),
      said,
      scroll,
    );
    let given = "";
    return {
      node,
      /* The filters as a query; one that the reader has changed stays. */
      set(query) {
        if (field.value === given) field.value = query;
        given = query;
      },
    };
  }

  root.kvSql = { cells, panel };
})(typeof globalThis === "object" ? globalThis : this);
