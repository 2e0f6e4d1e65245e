/* Format values exactly like `human` in `components/text.py`; the scales come from `tracekit.runs.text`. Exact values of queries keep a hyphen, to be
   copied into another query. */
(() => {
  "use strict";
  window.tracekit = window.tracekit || {};
  const MISSING = "–";

  /* Round half to even like Python; toFixed rounds half up. An exact tie is odd / 2^(digits + 1). */
  function fixed(value, digits) {
    const halves = Math.abs(value) * 2 ** (digits + 1);
    if (halves % 2 === 1) {
      const below = Math.floor(Math.abs(value) * 10 ** digits);
      const even = below % 2 === 0 ? below : below + 1;
      return (value < 0 ? "-" : "") + (even / 10 ** digits).toFixed(digits);
    }
    const text = value.toFixed(digits);
    return Object.is(value, -0) || (value < 0 && !text.startsWith("-")) ? `-${text.replace("-", "")}` : text;
  }

  /* Remove the sign of a value that rounds to zero. */
  function unsigned(text) {
    return Number(text) === 0 ? text.replace("-", "") : text;
  }

  function grouped(text) {
    const [whole, fraction] = text.split(".");
    const spaced = whole.replace(/\B(?=(\d{3})+$)/g, ",");
    return fraction === undefined ? spaced : `${spaced}.${fraction}`;
  }

  /* Python's `%g`: six digits, no trailing zeros. */
  function general(value) {
    if (value === 0) {
      return Object.is(value, -0) ? "-0" : "0";
    }
    const exponent = Number(value.toExponential(5).split("e")[1]);
    if (exponent < -4 || exponent >= 6) {
      const [digits, power] = value.toExponential(5).split("e");
      const sign = power[0];
      return `${trimmed(digits)}e${sign}${power.slice(1).padStart(2, "0")}`;
    }
    return trimmed(fixed(value, 5 - exponent));
  }

  function trimmed(text) {
    return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
  }

  function scaled(value, format) {
    for (const [scale, name] of format.scales) {
      if (Math.abs(value) >= scale) {
        return `${grouped(fixed(value / scale, 2))} ${name}`;
      }
    }
    return `${general(value)} ${format.base}`;
  }

  function number(value, format) {
    switch (format.kind) {
      case "scaled":
        return scaled(value, format);
      case "share":
        return `${unsigned(fixed(100 * value, 1))}%`;
      case "exact": // as `tracekit.export.views.cell`
        return Number.isInteger(value) ? String(value) : Math.abs(value) < 1e6 ? general(value) : fixed(value, 1);
      case "count":
        return grouped(format.decimals ? fixed(value, 2) : String(value));
      default: {
        const text = format.decimals ? grouped(fixed(value, 2)) : String(value);
        return format.suffix ? `${text} ${format.suffix}` : text;
      }
    }
  }

  /* All digits, for tooltips of rounded numbers. */
  window.tracekit.exact = (value, base) =>
    typeof value === "number" ? `${value.toLocaleString("en-US", { maximumFractionDigits: 20 }).replace("-", "−")} ${base}` : null;

  window.tracekit.human = (value, format) => {
    if (value === null || value === undefined) {
      return MISSING;
    }
    if (typeof value === "boolean") {
      return value ? "yes" : "no";
    }
    return typeof value === "number" ? number(value, format).replace(/^-/, format.kind === "exact" ? "-" : "−") : String(value);
  };
})();
