// Steps of a script: each is a claim about a running server that must hold. Its name is the claim; prints one `ok` line per step
// and exits with 1 on the first that does not hold.

import assert from "node:assert/strict";

/** Runs the steps on what `prepare(BASE_URL, MODEL)` gives. */
export async function main(prepare, steps) {
  const talk = prepare(...process.argv.slice(2));
  for (const [claim, step] of Object.entries(steps)) {
    try {
      await step(talk);
    } catch (failure) {
      console.log(`FAILED ${claim}: ${failure?.stack ?? failure}`);
      process.exit(1);
    }
    console.log(`ok ${claim}`);
  }
}

/** The error of this class that `call` rejects with. */
export async function rejected(kind, call) {
  const failure = await call().then(
    () => assert.fail(`not refused with ${kind.name}`),
    (error) => error,
  );
  assert.ok(failure instanceof kind, `${failure?.constructor?.name}: ${failure}`);
  return failure;
}
