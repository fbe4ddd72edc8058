// ioredis: all kinds of application traffic, sent to the port in the first argument. Prints `done` at the end.
// A printed line `cut` asks the test to close all connections; the test answers with a line.
'use strict';
const assert = require('node:assert');
const readline = require('node:readline');
const Redis = require('ioredis');

const port = Number(process.argv[2]);
const open = (options) => new Redis(port, '127.0.0.1', { db: 1, retryStrategy: () => 20, ...options });
const answers = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function strings(r) {
  assert.equal(await r.set('s', 'v', 'EX', 100), 'OK');
  assert.equal(await r.get('s'), 'v');
  assert.equal(await r.set('s', 'w', 'NX'), null);
  assert.ok((await r.ttl('s')) > 90);
  assert.equal(await r.incrby('n', 41), 41);
  await r.mset(Object.fromEntries([...Array(300).keys()].map((i) => [`m${i}`, i])));
  const keys = [...Array(300).keys()].map((i) => `m${i}`);
  assert.deepEqual(await r.mget(keys), keys.map((_, i) => String(i)));
  assert.equal(await r.del(keys), 300);
  assert.equal(await r.get('nobody'), null);
}

async function hashesAndLists(r) {
  await r.hset('h', { a: 1, b: 'zwei' });
  assert.deepEqual(await r.hgetall('h'), { a: '1', b: 'zwei' });
  assert.deepEqual(await r.hmget('h', 'a', 'c'), ['1', null]);
  await r.rpush('l', 1, 2, 3);
  assert.deepEqual(await r.lrange('l', 0, -1), ['1', '2', '3']);
  assert.equal(await r.lpop('l'), '1');
}

async function pipelines(r) {
  const pipeline = r.pipeline();
  for (let i = 0; i < 500; i += 1) pipeline.set(`p${i}`, i).get(`p${i}`);
  const replies = await pipeline.exec();
  assert.equal(replies.length, 1000);
  replies.forEach(([error, reply], at) => {
    assert.equal(error, null);
    assert.equal(reply, at % 2 ? String((at - 1) / 2) : 'OK');
  });
}

async function transactions(r) {
  const [[, one], [error], [, two]] = await r.multi().incr('t{x}').lpush('t{x}', 1).incr('t{x}').exec();
  assert.deepEqual([one, two], [1, 2]);
  assert.match(error.message, /WRONGTYPE/);
  await r.watch('t{x}');
  await open().set('t{x}', 7);
  assert.equal(await r.multi().incr('t{x}').exec(), null);
  assert.equal(await r.get('t{x}'), '7');
}

async function messages(r) {
  const subscriber = open();
  const heard = [];
  const two = new Promise((resolve) => {
    subscriber.on('message', (channel, text) => heard.push(`${channel}:${text}`) === 2 && resolve());
    subscriber.on('pmessage', (pattern, channel, text) => heard.push(`${pattern}:${channel}:${text}`) === 2 && resolve());
  });
  await subscriber.subscribe('news');
  await subscriber.psubscribe('n*s');
  assert.equal(await r.publish('news', 'hello'), 2);
  await two;
  assert.deepEqual(heard.sort(), ['n*s:news:hello', 'news:hello']);
  subscriber.disconnect();
}

async function blocking(r) {
  const waiting = open();
  const popped = waiting.blpop('queue', 10);
  await r.set('not-held-up', 1);
  await r.rpush('queue', 'job');
  assert.deepEqual(await popped, ['queue', 'job']);
  assert.equal(await waiting.blpop('queue', 0.1), null);
  waiting.disconnect();
}

async function large(r) {
  const value = Buffer.alloc(8 << 20, 'abc\r\n');
  await r.set('large', value);
  assert.ok(value.equals(await r.getBuffer('large')));
}

async function errors(r) {
  await assert.rejects(r.lpush('s', 1), /WRONGTYPE/);
  await assert.rejects(r.call('NOSUCH', 'k'), /unknown command/i);
  assert.equal(await r.eval('return redis.call("get", KEYS[1])', 1, 's'), 'v');
}

async function reconnect(r) {
  console.log('cut');
  await answers.next();
  for (let i = 0; i < 50; i += 1) assert.equal(await r.set('after', i), 'OK');
  assert.equal(await r.get('after'), '49');
}

async function main() {
  const r = open({ connectionName: 'test' });
  r.on('error', () => {}); // The error of the closed connection; failed commands report their own.
  for (const part of [strings, hashesAndLists, pipelines, transactions, messages, blocking, large, errors, reconnect]) {
    await part(r);
  }
  console.log('done');
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
