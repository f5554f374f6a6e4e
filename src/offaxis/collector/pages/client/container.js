/**
 * The container of a release file: safetensors, as much of it as a release needs, read strictly.
 *
 *     offset  size  content
 *     0       8     n, the size of the header, little-endian
 *     8       n     JSON: the place, type and shape of every tensor by name, and "__metadata__"
 *     8 + n   …     the tensors, one after the other, without gaps
 *
 * Nothing in the file is believed before it is checked.
 */

import { InvalidRelease, shown } from "./errors.js";
import { parseJson } from "./strict_json.js";

export const LARGEST_DIM = 1 << 20;
const LARGEST_FILE = 1n << 30n;
const LARGEST_HEADER = 1n << 20n;
const METADATA = "__metadata__";
const ENTRY = ["data_offsets", "dtype", "shape"];

/** Read the header of an untrusted file, and where the tensors begin. */
export function readHeader(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const size = bytes.length < 8 ? undefined : view.getBigUint64(0, true);
  if (size > LARGEST_HEADER) {
    throw new InvalidRelease(`the file is not a release: its header would have ${size} bytes`);
  }
  const start = 8 + Number(size ?? 0n);
  if (size === undefined || bytes.length < start) throw endsEarly();
  const text = bytes.subarray(8, start);
  let header;
  try {
    header = parseJson(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(text));
  } catch {
    throw new InvalidRelease("the file is not a release: its header is not JSON");
  }
  // As safetensors asks: the object begins at once, though blanks may follow it.
  if (!(header instanceof Map) || text[0] !== 0x7b) {
    throw new InvalidRelease("the file is not a release: its header is no JSON object");
  }
  return { header, start };
}

/** Return the one text a header carries beside its tensors. */
export function readMetadata(header, key) {
  const metadata = header.get(METADATA);
  if (!(metadata instanceof Map) || metadata.size !== 1 || !metadata.has(key)) {
    throw new InvalidRelease("this is not an offaxis release: it has no manifest");
  }
  if (typeof metadata.get(key) !== "string") {
    throw new InvalidRelease("this is not an offaxis release: its manifest is no text");
  }
  return metadata.get(key);
}

/** Read the float64 tensors that follow a header: name → {shape, bytes, values}. */
export function readTensors(bytes, { header, start }) {
  const places = [...header].filter(([name]) => name !== METADATA).map(place);
  places.sort((a, b) => Number(a.begin - b.begin) || Number(a.stop - b.stop));
  let end = 0n;
  for (const { name, begin, stop } of places) {
    if (begin !== end) {
      throw new InvalidRelease(`tensor ${shown(name)} does not follow the one before it`);
    }
    end = stop;
  }
  if (end > LARGEST_FILE) {
    throw new InvalidRelease(`the file is larger than a release may be (${LARGEST_FILE} bytes)`);
  }
  const held = bytes.length - start;
  if (held < Number(end)) throw endsEarly();
  if (held > Number(end)) throw new InvalidRelease("the file goes on after its last tensor");
  const tensors = new Map();
  for (const { name, begin, stop, shape } of places) {
    const part = bytes.slice(start + Number(begin), start + Number(stop));
    tensors.set(name, { shape, bytes: part, values: floats(part) });
  }
  return tensors;
}

/** Return where a tensor begins and ends, and its shape. */
function place([name, entry]) {
  const known = entry instanceof Map && [...entry.keys()].sort().join() === ENTRY.join();
  if (/[^\u0000-\u007f]/.test(name)) {
    throw new InvalidRelease(`tensor ${shown(name)} has a name no release has`);
  }
  if (!known) {
    throw new InvalidRelease(`tensor ${shown(name)} is not described as safetensors does`);
  }
  if (entry.get("dtype") !== "F64") {
    throw new InvalidRelease(`tensor ${shown(name)} has type ${shown(entry.get("dtype"))}, not F64`);
  }
  const [sizes, offsets] = [entry.get("shape"), entry.get("data_offsets")];
  if (!naturals(sizes) || sizes.length > 2 || sizes.some((size) => size > BigInt(LARGEST_DIM))) {
    throw new InvalidRelease(`tensor ${shown(name)} has a shape no release has`);
  }
  const size = 8n * sizes.reduce((product, length) => product * length, 1n);
  if (!naturals(offsets) || offsets.length !== 2 || offsets[1] - offsets[0] !== size) {
    throw new InvalidRelease(`tensor ${shown(name)} does not fit its place in the file`);
  }
  return { name, begin: offsets[0], stop: offsets[1], shape: sizes.map(Number) };
}

function naturals(value) {
  return Array.isArray(value) && value.every((n) => typeof n === "bigint" && n >= 0n);
}

/** Read float64 numbers, low byte first, whatever the machine's own order. */
function floats(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Float64Array.from({ length: bytes.length / 8 }, (_, i) => view.getFloat64(8 * i, true));
}

function endsEarly() {
  return new InvalidRelease("the file is truncated or not a release: it ends too early");
}
