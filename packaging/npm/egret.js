#!/usr/bin/env node
// Runs the `egret` binary of this platform's package. Signals and the exit code are passed on.
'use strict';

const { spawn } = require('node:child_process');
const { constants } = require('node:os');

const name = `egret-gateway-${process.platform}-${process.arch}`;

function binary() {
  try {
    return require.resolve(`${name}/egret`);
  } catch {
    console.error(
      `egret-gateway has no binary for ${process.platform} on ${process.arch}, or its package ${name} is not ` +
        'installed: install again without --omit=optional.',
    );
    process.exit(1);
  }
}

const egret = spawn(binary(), process.argv.slice(2), { stdio: 'inherit' });
// Ctrl-C in a terminal reaches both processes. Egret takes two signals of that kind within 100 ms as one.
for (const signal of ['SIGHUP', 'SIGINT', 'SIGTERM', 'SIGUSR1', 'SIGUSR2']) {
  process.on(signal, () => egret.kill(signal));
}
egret.on('error', (error) => {
  console.error(`${name}: ${error.message}`);
  process.exit(1);
});
egret.on('exit', (code, signal) => {
  process.exit(code ?? 128 + (constants.signals[signal] ?? 0));
});
