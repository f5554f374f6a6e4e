// Reads one JSON request per line and writes one response per line: the client for Python tests.
import { createInterface } from "node:readline";
import { readHeader, readTensors } from "../../../src/offaxis/collector/pages/client/container.js";
import { nextReport } from "../../../src/offaxis/collector/pages/client/device/sequences.js";
import { ENCODERS } from "../../../src/offaxis/collector/pages/client/encoders.js";
import { Entropy } from "../../../src/offaxis/collector/pages/client/entropy.js";
import { OffaxisError } from "../../../src/offaxis/collector/pages/client/errors.js";
import {
  DiscreteLaplace,
  Response,
  below,
  chooseSubsets,
} from "../../../src/offaxis/collector/pages/client/exact.js";
import { exact } from "../../../src/offaxis/collector/pages/client/fraction.js";
import {
  loadRelease,
  readRound,
  verifyRelease,
  verifyRound,
} from "../../../src/offaxis/collector/pages/client/index.js";
import { Laplace } from "../../../src/offaxis/collector/pages/client/laplace.js";
import { PrivUnit2 } from "../../../src/offaxis/collector/pages/client/privunit.js";
import { meanComponent } from "../../../src/offaxis/collector/pages/client/ranks.js";
import { canonicalJson, parseJson } from "../../../src/offaxis/collector/pages/client/strict_json.js";
import { SubsetSelection } from "../../../src/offaxis/collector/pages/client/subset.js";
import { asParameters, fromHex, toHex, withTape } from "./recorded.mjs";
import { Written } from "./tape.mjs";

const bytes = (text) => Uint8Array.from(Buffer.from(text, "base64"));
const load = ({ file, expect }) => loadRelease(bytes(file), { expect });

async function eachOf(values, action) {
  const out = [];
  for (const value of values) out.push(await action(value));
  return out;
}

// Return a result for each value; an error of the client is returned, any other fails the test.
async function verdicts(values, action) {
  return eachOf(values, async (value) => {
    try {
      return { ok: await action(value) };
    } catch (error) {
      if (!(error instanceof OffaxisError)) return { escaped: error.stack };
      return { error: error.name, message: error.message };
    }
  });
}

const SAMPLERS = {
  laplace: ({ b, digits }, count, tape) => [...new DiscreteLaplace(b, digits).draw(count, tape)],
  response: ({ size, near, epsilon }, count, tape) =>
    new Response(size, near, exact(epsilon, "epsilon"))
      .draw(count, tape)
      .map(({ isNear, offset }) => [Number(isNear), offset]),
  below: ({ limit }, count, tape) => [...below(limit, count, tape)],
  // The members of each subset, then the one that is singled out.
  subsets: ({ columns, chosen }, count, tape) =>
    chooseSubsets(columns, chosen, count, tape).map(({ member, last }) => [...member, last]),
};

/** Return a report, or the first one of a new sequence. */
async function firstReport(release, vector) {
  if (!release.sequence) return release.privatize(vector);
  return (await nextReport(release, null, 0, vector)).report;
}

const HANDLERS = {
  load: ({ files }) =>
    verdicts(files, async (file) => {
      const { hash, guarantee, inputDim, reportSize, asked, publicMean } = await load({ file });
      return { hash, guarantee, inputDim, reportSize, asked, publicMean: [...publicMean] };
    }),
  privatize: async (request) => {
    const release = await load(request);
    return eachOf(request.vectors, async (vector) => toHex(await firstReport(release, vector)));
  },
  // Each person's sequence: one vector per round, the report of each round and the state after it.
  sequences: async (request) => {
    const release = await load(request);
    return eachOf(request.people, async ({ numbers, vectors }) => {
      let state = null;
      return eachOf(numbers.entries(), async ([i, number]) => {
        const made = await nextReport(release, state, number, vectors[i]);
        state = made.state;
        return { report: toHex(made.report), ...state, held: toHex(state.held) };
      });
    });
  },
  answer: async (request) => {
    const release = await load(request);
    return verdicts(request.answers, async (answer) => toHex(await release.privatizeAnswer(answer)));
  },
  // The row of each vector with its answers.
  pair: async (request) => {
    const release = await load(request);
    return verdicts(request.pairs, ([vector, answers]) => [...release.pair(vector, answers)]);
  },
  // The report of each vector with its answers, from a tape in the place of the browser's randomness.
  taped: async (request) => {
    const release = await load(request);
    return eachOf(request.pairs, async ([vector, answers, text]) => {
      const tape = new Written(fromHex(text));
      const report = await withTape(tape, () => release.privatize(vector, answers));
      return { report: toHex(report), used: tape.used };
    });
  },
  // The payloads of symbols from each tape.
  subsetPayloads: ({ parameters, symbols, tapes }) => {
    const form = new SubsetSelection(asParameters(parameters));
    return eachOf(tapes, async (text) => {
      const tape = new Written(fromHex(text));
      return { payloads: (await form.report(symbols, tape)).map(toHex), used: tape.used };
    });
  },
  decode: async (request) => {
    const release = await load(request);
    return verdicts(request.reports, async (report) => [...(await release.decode(fromHex(report)))]);
  },
  observe: async (request) => {
    const release = await load(request);
    return verdicts(request.reports, async (report) => [...(await release.observe(fromHex(report)))]);
  },
  encode: ({ file, kind, vectors }) => {
    const content = bytes(file);
    const encoder = ENCODERS.get(kind)(readTensors(content, readHeader(content)), "encoder");
    return vectors.map((vector) => {
      const encoded = encoder.encode(Float64Array.from(vector));
      return typeof encoded === "number" ? encoded : [...encoded];
    });
  },
  draw: ({ sampler, settings, count, tapes }) =>
    tapes.map((text) => {
      const tape = new Written(fromHex(text));
      return { values: SAMPLERS[sampler](settings, count, tape), used: tape.used };
    }),
  lattices: ({ epsilons }) =>
    verdicts(epsilons, ([epsilon, scale]) => {
      const { bound, width } = new Laplace(
        asParameters({ dim: 3, radius: 1, epsilon, log2_scale: scale }),
      );
      return [bound, width];
    }),
  integers: ({ kind, parameters, vectors }) => {
    const form = new { laplace: Laplace, privunit2: PrivUnit2 }[kind](asParameters(parameters));
    return vectors.map((vector) => [...form.integers(Float64Array.from(vector))]);
  },
  noise: ({ log2Scale, count }) => [...new DiscreteLaplace(log2Scale, 24).draw(count, new Entropy())],
  mean: ({ law, dim, pairs, near, epsilon }) => meanComponent(law, dim, pairs, near, epsilon),
  exact: ({ texts }) => verdicts(texts, (text) => exact(text, "it").toString()),
  json: ({ texts }) =>
    texts.map((text) => {
      try {
        return canonicalJson(parseJson(text));
      } catch (error) {
        return error instanceof SyntaxError ? null : `escaped: ${error.stack}`;
      }
    }),
  rounds: ({ documents }) =>
    verdicts(documents, (document) => {
      const round = readRound(bytes(document));
      if (readRound(JSON.parse(round.document)).document !== round.document) throw new Error("forms");
      return { ...round };
    }),
  signedRound: ({ publisher, document, signature }) =>
    verdicts([signature], async (text) =>
      verifyRound(publisher, readRound(bytes(document)), fromHex(text)),
    ),
  signedRelease: ({ publisher, hash, signature }) =>
    verdicts([signature], async (text) => verifyRelease(publisher, hash, fromHex(text))),
};

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  let response;
  try {
    response = { result: (await HANDLERS[request.action](request)) ?? null };
  } catch (error) {
    response = { failed: error.stack };
  }
  process.stdout.write(`${JSON.stringify(response)}\n`);
}
