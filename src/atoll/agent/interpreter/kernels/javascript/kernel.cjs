// One context of JavaScript or TypeScript: runs inside the sandbox, with the image's Node.
//
// Code runs as scripts in the global context, so that what it declares is there for the next code.
// Top-level `const`, `let` and `class` become `var`: code that is run twice declares twice. Nothing
// of the agent is here, and the agent trusts nothing that comes from here.
'use strict';

const fs = require('node:fs');
const net = require('node:net');
const path = require('node:path');
const util = require('node:util');
const vm = require('node:vm');
const nodeModule = require('node:module');
const { rewrite } = require('./rewrite.cjs');
const { forms, describe, failure } = require('./values.cjs');

const HEADER = 9; // kind, number of the execution, length
const MAX_FORM = 16 << 20;
const PROTOCOL = Number(process.argv[2]);
const LANGUAGE = process.argv[3] || 'javascript';

let number = 0;
let count = 0;
let displays = 0;
let interrupt = null;

function send(kind, id, body) {
  const text = Buffer.from(JSON.stringify(body));
  const message = Buffer.alloc(HEADER + text.length);
  message.write(kind, 0, 'latin1');
  message.writeUInt32BE(id, 1);
  message.writeUInt32BE(text.length, 5);
  text.copy(message, HEADER);
  for (let at = 0; at < message.length; ) {
    try {
      at += fs.writeSync(PROTOCOL, message, at);
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1); // the agent is busy
    }
  }
}

function emit(type, found, displayId) {
  const told = displayId === undefined ? { type } : { type, displayId: String(displayId) };
  const truncated = {};
  for (const [name, value] of Object.entries(found)) {
    const size = (JSON.stringify(value) ?? '').length;
    if (size > MAX_FORM) truncated[name] = size;
    else told[name] = value;
  }
  if (Object.keys(truncated).length) told.truncated = truncated;
  send('R', number, told);
}

function display(value, options = {}) {
  const id = options.display_id === true ? `display-${++displays}` : options.display_id;
  emit(options.update ? 'update' : 'display', forms(value, options.raw), id);
  return id;
}

function strip(code) {
  if (LANGUAGE !== 'typescript') return code;
  try {
    return nodeModule.stripTypeScriptTypes(code, { mode: 'strip' });
  } catch (error) {
    if (error.code !== 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX') throw error;
    return nodeModule.stripTypeScriptTypes(code, { mode: 'transform' });
  }
}

async function evaluate(code, filename) {
  const script = rewrite(strip(code));
  const compiled = new vm.Script(script.code, {
    filename,
    importModuleDynamically: vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  });
  let value = compiled.runInThisContext({ breakOnSigint: true, displayErrors: false });
  if (script.waits) value = (await untilInterrupted(value))?.value;
  await new Promise(setImmediate); // a rejection that nobody handles ends the process before this
  return { value: script.shows ? value : undefined }; // wrapped: a promise is not waited for
}

function untilInterrupted(promise) {
  return Promise.race([promise, new Promise((_, reject) => { interrupt = reject; })]);
}

process.on('SIGINT', () => {
  const error = new Error('the code was interrupted');
  error.name = 'Interrupted';
  interrupt?.(error);
});

async function run(id, body) {
  number = id;
  count += 1;
  const filename = `cell-${count}.js`;
  applyEnv(body.env);
  const before = Object.fromEntries(
    Object.keys(body.envVars ?? {}).map((name) => [name, process.env[name] ?? null]),
  );
  applyEnv(body.envVars);
  let status = 'ok';
  try {
    const { value } = await evaluate(body.code, filename);
    if (value !== undefined) {
      globalThis._ = value;
      emit('result', forms(value));
    }
  } catch (error) {
    status = 'error';
    send('R', number, failure(error, filename));
  } finally {
    interrupt = null;
    applyEnv(before);
  }
  send('D', id, { status, count });
}

function applyEnv(env) {
  for (const [name, value] of Object.entries(env ?? {})) {
    if (value === null) delete process.env[name];
    else process.env[name] = value;
  }
}

function value(name, form) {
  if ('json' in form) return form.json;
  if ('bytes' in form) return Buffer.from(form.bytes, 'base64');
  throw new Error(`${name}: frames of pandas are for Python contexts`);
}

function assign(id, given) {
  try {
    for (const [name, form] of Object.entries(given)) globalThis[name] = value(name, form);
  } catch (error) { // as of `undefined`, which nobody may set
    return send('V', id, { failed: error.message });
  }
  return send('V', id, {});
}

let jobs = Promise.resolve();

function take(kind, id, body) {
  if (kind === 'r') jobs = jobs.then(() => run(id, body));
  else if (kind === 's') jobs = jobs.then(() => assign(id, body));
  else if (kind === 'v') {
    jobs = jobs.then(() => send('V', id, { variables: describe(known) }));
  }
}

globalThis.require = nodeModule.createRequire(path.join(process.cwd(), 'cell.js'));
globalThis.module = { exports: {} };
globalThis.exports = globalThis.module.exports;
globalThis.display = display;
const known = new Set([...Object.getOwnPropertyNames(globalThis), '_']);
util.inspect.defaultOptions.depth = 4;

let buffer = Buffer.alloc(0);
const socket = new net.Socket({ fd: PROTOCOL, readable: true, writable: true });
socket.on('data', (data) => {
  buffer = Buffer.concat([buffer, data]);
  while (buffer.length >= HEADER) {
    const end = HEADER + buffer.readUInt32BE(5);
    if (buffer.length < end) return;
    take(String.fromCharCode(buffer[0]), buffer.readUInt32BE(1),
      JSON.parse(buffer.subarray(HEADER, end).toString()));
    buffer = buffer.subarray(end);
  }
});
socket.on('end', () => process.exit(0));
socket.on('error', () => process.exit(0));

if (LANGUAGE === 'typescript' && !nodeModule.stripTypeScriptTypes) {
  send('k', 0, { failed: `TypeScript needs Node 22.13 or newer, the image has ${process.version}` });
} else {
  send('k', 0, {});
}
