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
    const rows = plain.map(([column, values]) => `    ("${column}", "in", ${literal(values)}),`);
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
      lines.push(`own = rows["model"].astype(str).map(others).fillna(${literal(first ? first[0] : "")})`);
      lines.push(
        `rows = rows[(rows["kv_format"].astype(str) == own) | rows["kv_format"].isin(${literal(own[2])})]`,
      );
    }
    lines.push('rows = rows.sort_values("max_concurrent_requests", ascending=False)');
    return lines.join("\n");
  }

  root.kvQueries = { sql, pandas };
})(typeof globalThis === "object" ? globalThis : this);
