// Turns code into a script whose declarations last: see kernel.cjs.
//
// Node's own parser is used (`--expose-internals`), so nothing has to be installed. Lines are kept,
// because errors tell them.
'use strict';

const acorn = require('internal/deps/acorn/acorn/dist/acorn');

const OPTIONS = {
  ecmaVersion: 'latest',
  sourceType: 'script',
  allowAwaitOutsideFunction: true,
  allowImportExportEverywhere: true,
  allowHashBang: true,
};
const FUNCTIONS = new Set(['FunctionDeclaration', 'FunctionExpression', 'ArrowFunctionExpression']);

function waits(node) {
  if (!node || typeof node.type !== 'string') return false;
  if (node.type === 'AwaitExpression' || node.type === 'ImportDeclaration') return true;
  if (node.type === 'ForOfStatement' && node.await) return true;
  if (FUNCTIONS.has(node.type)) return false;
  return Object.values(node).some((part) =>
    Array.isArray(part) ? part.some(waits) : typeof part === 'object' && waits(part));
}

function names(pattern) {
  switch (pattern?.type) {
    case 'Identifier': return [pattern.name];
    case 'ObjectPattern': return pattern.properties.flatMap((one) => names(one.value ?? one.argument));
    case 'ArrayPattern': return pattern.elements.flatMap(names);
    case 'AssignmentPattern': return names(pattern.left);
    case 'RestElement': return names(pattern.argument);
    default: return [];
  }
}

class Edits {
  constructor(code) {
    this.code = code;
    this.list = [];
    this.declared = [];
    this.first = [];
  }

  put(start, end, text) {
    this.list.push([start, end, text]);
  }

  text(node) {
    return this.code.slice(node.start, node.end);
  }

  apply() {
    let done = '';
    let at = 0;
    for (const [start, end, text] of this.list.sort((a, b) => a[0] - b[0])) {
      done += this.code.slice(at, start) + text;
      at = end;
    }
    return done + this.code.slice(at);
  }
}

const lines = (text) => '\n'.repeat(text.split('\n').length - 1);

function imported(edits, node) {
  const source = JSON.stringify(node.source.value);
  const taken = node.specifiers.map((one) => {
    edits.declared.push(one.local.name);
    if (one.type === 'ImportNamespaceSpecifier') return `${one.local.name} = m;`;
    const name = one.type === 'ImportDefaultSpecifier'
      ? 'default' : (one.imported.name ?? one.imported.value);
    return `${one.local.name} = m[${JSON.stringify(name)}];`;
  });
  const text = `{ const m = await import(${source}); ${taken.join(' ')} }`;
  edits.put(node.start, node.end, text + lines(edits.text(node)));
}

// In an async function declarations are local: names are declared outside, values assigned inside.
function hoisted(edits, node) {
  if (node.type === 'VariableDeclaration') {
    edits.declared.push(...node.declarations.flatMap((one) => names(one.id)));
    edits.put(node.start, node.declarations[0].start, ';(');
    for (const one of node.declarations) {
      if (!one.init) edits.put(one.end, one.end, ' = undefined');
      else if (one.id.type !== 'Identifier') {
        edits.put(one.start, one.start, '(');
        edits.put(one.end, one.end, ')');
      }
    }
    const last = node.declarations.at(-1).end;
    edits.put(last, node.end, ');');
  } else if (node.type === 'ClassDeclaration') {
    edits.declared.push(node.id.name);
    edits.put(node.start, node.start, `;${node.id.name} = `);
    edits.put(node.end, node.end, ';');
  } else if (node.type === 'FunctionDeclaration') {
    edits.first.push(`globalThis.${node.id.name} = ${node.id.name};`);
  }
}

function lasting(edits, node) {
  if (node.type === 'VariableDeclaration' && node.kind !== 'var') {
    edits.put(node.start, node.start + node.kind.length, 'var');
  } else if (node.type === 'ClassDeclaration') {
    edits.put(node.start, node.start, `var ${node.id.name} = `);
    edits.put(node.end, node.end, ';');
  }
}

function rewrite(code) {
  let tree;
  try {
    tree = acorn.parse(code, OPTIONS);
  } catch {
    return { code, waits: false, shows: true }; // Node's own error is the better one
  }
  const edits = new Edits(code);
  const asynchronous = tree.body.some(waits);
  const last = tree.body.at(-1);
  for (let node of tree.body) {
    if (node.type === 'ExportNamedDeclaration' && node.declaration) {
      edits.put(node.start, node.declaration.start, '');
      node = node.declaration;
    }
    if (node.type === 'ImportDeclaration') imported(edits, node);
    else (asynchronous ? hoisted : lasting)(edits, node);
  }
  const shows = last?.type === 'ExpressionStatement';
  if (!asynchronous) return { code: edits.apply(), waits: false, shows };
  if (shows) {
    edits.put(last.start, last.expression.start, 'return { value: (');
    edits.put(last.expression.end, last.end, ') };');
  }
  const declared = edits.declared.length ? `var ${[...new Set(edits.declared)].join(', ')};` : '';
  const inside = `${edits.first.join(' ')} ${edits.apply()}`;
  return { code: `${declared}(async () => { ${inside}\n})()`, waits: true, shows };
}

module.exports = { rewrite };
