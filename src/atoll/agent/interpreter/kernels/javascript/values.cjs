// Values in the forms that results have, and errors as they are told.
'use strict';

const util = require('node:util');

const MAX_TEXT = 1 << 20;
const MAX_ITEMS = 10_000;
const MAX_DEPTH = 32;
const MIME = {
  'text/plain': 'text',
  'text/html': 'html',
  'image/png': 'png',
  'image/jpeg': 'jpeg',
  'image/svg+xml': 'svg',
  'text/latex': 'latex',
  'text/markdown': 'markdown',
  'application/javascript': 'javascript',
  'application/json': 'json',
};
const RICH = Symbol.for('Jupyter.display');

function text(value) {
  try {
    const found = util.inspect(value, { depth: 4, maxArrayLength: 1000, maxStringLength: MAX_TEXT });
    return found.length > MAX_TEXT ? `${found.slice(0, MAX_TEXT)}…` : found;
  } catch (error) {
    return `<its text cannot be had: ${error?.name}>`;
  }
}

// The value as strict JSON: circular, deep, huge, BigInt and getters that throw included.
function plain(value) {
  let left = MAX_ITEMS;
  const open = new Set();
  function walk(one, depth) {
    if (one === null || typeof one === 'boolean' || typeof one === 'string') return one;
    if (typeof one === 'number') return Number.isFinite(one) ? one : null;
    if (typeof one === 'bigint') return String(one);
    if (typeof one !== 'object') return one === undefined ? null : text(one);
    if (one instanceof Date) return Number.isNaN(+one) ? null : one.toISOString();
    if (Buffer.isBuffer(one)) return one.toString('base64');
    if (open.has(one) || depth > MAX_DEPTH || left <= 0) return '…';
    open.add(one);
    try {
      if (Array.isArray(one) || ArrayBuffer.isView(one)) {
        return Array.from(one).slice(0, Math.max(0, left)).map((item) => (left--, walk(item, depth + 1)));
      }
      const pairs = one instanceof Map ? [...one] : Object.keys(one).map((key) => [key, one[key]]);
      return Object.fromEntries(pairs.slice(0, Math.max(0, left)).map(([key, item]) => (
        left--, [typeof key === 'string' ? key : text(key), walk(item, depth + 1)])));
    } catch (error) {
      return `<cannot be read: ${error?.name}>`;
    } finally {
      open.delete(one);
    }
  }
  return walk(value, 0);
}

function bundle(given) {
  const found = {};
  for (const [mime, value] of Object.entries(given)) {
    const name = MIME[mime];
    if (!name) (found.data ??= {})[mime] = plain(value);
    else if (name === 'json') found.json = plain(value);
    else found[name] = Buffer.isBuffer(value) || value instanceof Uint8Array
      ? Buffer.from(value).toString('base64') : String(value);
  }
  return found;
}

function forms(value, raw = false) {
  if (raw && value && typeof value === 'object') return { text: '', ...bundle(value) };
  const rich = value?.[RICH];
  if (typeof rich === 'function') return { text: text(value), ...bundle(rich.call(value) ?? {}) };
  const kind = value === null || typeof value !== 'object' ? null : Object.getPrototypeOf(value);
  if (kind === Object.prototype || kind === Array.prototype || (value && kind === null && typeof value === 'object')) {
    return { text: text(value), json: plain(value) };
  }
  return { text: text(value) };
}

function describe(known) {
  return Object.getOwnPropertyNames(globalThis)
    .filter((name) => !known.has(name))
    .sort()
    .slice(0, 1000)
    .map((name) => {
      const value = globalThis[name];
      const length = Array.isArray(value) || typeof value === 'string' ? value.length : value?.size;
      return {
        name,
        type: value?.constructor?.name ?? typeof value,
        shape: Number.isInteger(length) ? [length] : null,
        preview: text(value).slice(0, 200),
      };
    });
}

// Lines of the stack up to the first of ours or Node's own.
function trimmed(stack) {
  const found = [];
  for (const line of stack.split('\n')) {
    if (/\(?(node:|.*kernels\/javascript\/)/.test(line) && /^\s+at /.test(line)) break;
    found.push(line);
  }
  return found.slice(0, 400).map((line) => line.slice(0, 10_000));
}

function failure(error, filename) {
  const isError = error instanceof Error || (error && typeof error === 'object' && 'stack' in error);
  const stack = isError ? String(error.stack ?? error) : `Uncaught ${text(error)}`;
  const place = new RegExp(`${filename.replace('.', '\\.')}:(\\d+)`).exec(stack);
  const interrupted = error?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED';
  return {
    type: 'error',
    name: interrupted ? 'Interrupted' : isError ? String(error.name) : 'Error',
    message: interrupted ? 'the code was interrupted' : isError ? String(error.message) : text(error),
    traceback: trimmed(stack),
    lineNumber: place ? Number(place[1]) : null,
  };
}

module.exports = { forms, plain, describe, failure };
