/* The explorer's filters as queries over the published Parquet file. `filters` are [column, values]; a filter
   "own" has [KV format, models that have it by default] and further formats. No page here. */
(function (root) {
  "use strict";

  const COLUMNS = [
    "model",
    "gpu",
    "layout",
    "weight_format",
    "kv_format",
    "context_tokens",
    "max_concurrent_requests",
    "decode_ms_lower_bound",
    "kv_pool_bytes_per_gpu",
    "verdict",
  ];

  /* [column, values] of every filter; models are named where a filter looks at the model. */
  function conditions(state, choice, site) {
    /** @type {any[]} */
    const found = [["engine", [site.engine.name]]];
    if (state.name || state.kind || state.input || state.size || state.maker) {
      found.push(["model", choice.models.map((model) => model.id)]);
    }
    if (state.gpu) found.push(["gpu", state.gpu]);
    found.push(["layout", choice.sizes.map((n) => site.layouts[n].label)]);
    if (state.weights) found.push(["weight_format", state.weights]);
    if (state.kv) {
      const kinds = state.kv.filter((name) => name !== "own");
      found.push(state.kv.includes("own") ? ["own", own(choice.models), kinds] : ["kv_format", kinds]);
    }
    if (state.context) found.push(["context_tokens", state.context.map(Number)]);
    if (state.verdict) found.push(["verdict", state.verdict]);
    else if (state.requests) found.push(["verdict", root.kvKernel.words.serving_verdicts]);
    else found.push(["refused", root.kvMatrix.REFUSED]); // as the table, which has no row of them
    return found;
  }

  /* The models of each default KV format, the most frequent format first. */
  function own(models) {
    const byFormat = new Map();
    for (const model of models) {
      if (!byFormat.has(model.kv)) byFormat.set(model.kv, []);
      byFormat.get(model.kv).push(model.id);
    }
    return [...byFormat].sort((a, b) => b[1].length - a[1].length);
  }

  const text = (value) => (typeof value === "number" ? String(value) : `'${value.replace(/'/g, "''")}'`);

  /* Models whose default is not the most frequent one are named; the others are the rest. */
  function sqlOwn(byFormat, further) {
    const [first, ...others] = byFormat;
    if (!first) return "FALSE";
    const cases = others.map(([format, models]) =>
      `WHEN model IN (${models.map(text).join(", ")}) THEN ${text(format)}`
    );
    const own = cases.length ? `CASE ${cases.join(" ")} ELSE ${text(first[0])} END` : text(first[0]);
    const rest = further.length ? ` OR kv_format IN (${further.map(text).join(", ")})` : "";
    return rest ? `(kv_format = ${own}${rest})` : `kv_format = ${own}`;
  }

  function sql(address, filters, least) {
    const where = filters.map(([column, values, further]) =>
      column === "own"
        ? sqlOwn(values, further)
        : column === "refused"
        ? `verdict NOT IN (${values.map(text).join(", ")})`
        : values.length === 1
        ? `${column} = ${text(values[0])}`
        : `${column} IN (${values.map(text).join(", ")})`
    );
    if (least) where.push(`max_concurrent_requests >= ${least}`);
    return [
      `SELECT ${COLUMNS.join(", ")}`,
      `FROM '${address}'`,
      `WHERE ${where.join("\n  AND ")}`,
      "ORDER BY max_concurrent_requests DESC;",
    ].join("\n");
  }

  const literal = (value) => JSON.stringify(value);

  function pandas(address, filters, least) {
    const plain = filters.filter(([column]) => column !== "own");
    const rows = plain.map(([column, values]) =>
      column === "refused"
        ? `    ("verdict", "not in", ${literal(values)}),`
        : `    ("${column}", "in", ${literal(values)}),`
    );
    if (least) rows.push(`    ("max_concurrent_requests", ">=", ${least}),`);
    const own = filters.find(([column]) => column === "own");
    const lines = [
      "import pandas as pd",
      "",
      `rows = pd.read_parquet("${address}", filters=[`,
      ...rows,
      "])",
    ];
    if (own) {
      const [first, ...others] = own[1];
      lines.push(
        `others = {${
          others.flatMap(([format, models]) => models.map((model) => `${literal(model)}: ${literal(format)}`))
            .join(", ")
        }}`,
      );
      lines.push(`own = [others.get(model, ${literal(first ? first[0] : "")}) for model in rows["model"]]`);
      lines.push(
        `rows = rows[(rows["kv_format"].astype(str) == own) | rows["kv_format"].isin(${literal(own[2])})]`,
      );
    }
    lines.push('rows = rows.sort_values("max_concurrent_requests", ascending=False)');
    return lines.join("\n");
  }

  const CSV =
    "model,gpu,engine,layout,tensor_parallel,weight_format,kv_format,context_tokens,weight_bytes_per_gpu,kv_bytes_per_token_per_gpu,kv_bytes_per_request_per_gpu,kv_pool_bytes_per_gpu,max_concurrent_requests,max_concurrent_requests_ceiling,max_context_tokens,verdict";

  /* Rows as a CSV file, under the names of the dataset's columns. */
  function csv(rows, longest, engine) {
    const lines = rows.map((row) =>
      [
        row.config.model.id,
        row.config.gpu.id,
        engine,
        row.config.layout.label,
        row.config.layout.tp,
        row.config.weightFormat,
        row.config.kvFormat,
        row.context,
        row.config.weights,
        row.token,
        row.request,
        row.config.pool,
        row.users,
        row.ceiling,
        longest(row),
        row.verdict,
      ].join(",")
    );
    return `${[CSV, ...lines].join("\n")}\n`;
  }

  root.kvQueries = { conditions, csv, sql, pandas };
})(typeof globalThis === "object" ? globalThis : this);
