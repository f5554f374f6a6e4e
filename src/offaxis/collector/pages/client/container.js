/**
 * The container of a release file: the part of safetensors that a release needs, read strictly.
 *
 *     offset  size  content
 *     0       8     n, the size of the header, little-endian
 *     8       n     JSON: offsets, type and shape of every tensor by name, and "__metadata__"
 *     8 + n   …     the tensors, one after the other, without gaps
 *
 * Nothing in the file is trusted before it is checked.
 */

import { InvalidRelease, shown } from "./errors.js";
import { parseJson } from "./strict_json.js";

export const LARGEST_DIM = 1 << 20;
const LARGEST_FILE = 1n << 30n;
const LARGEST_HEADER = 1n << 20n;
const METADATA = "__metadata__";
const ENTRY = ["data_offsets", "dtype", "shape"];

/** Read the header of an untrusted file, and the offset at which the tensors begin. */
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
  // As safetensors requires: no white space before the object, though it may follow.
  if (!(header instanceof Map) || text[0] !== 0x7b) {
    throw new InvalidRelease("the file is not a release: its header is not a JSON object");
  }
  return { header, start };
}

/** Return the one metadata text of a header. */
export function readMetadata(header, key) {
  const metadata = header.get(METADATA);
  if (!(metadata instanceof Map) || metadata.size !== 1 || !metadata.has(key)) {
    throw new InvalidRelease("this is not an offaxis release: it has no manifest");
  }
  if (typeof metadata.get(key) !== "string") {
    throw new InvalidRelease("this is not an offaxis release: its manifest is not text");
  }
  return metadata.get(key);
}

/** Read the float64 tensors that follow a header: name → {shape, bytes, values}. */
export function readTensors(bytes, { header, start }) {
  const entries = [...header].filter(([name]) => name !== METADATA).map(readEntry);
  entries.sort((a, b) => Number(a.begin - b.begin) || Number(a.stop - b.stop));
  let end = 0n;
  for (const { name, begin, stop } of entries) {
    if (begin !== end) {
      throw new InvalidRelease(`tensor ${shown(name)} does not follow the previous one`);
    }
    end = stop;
  }
  if (end > LARGEST_FILE) {
    throw new InvalidRelease(`the file is larger than a release may be (${LARGEST_FILE} bytes)`);
  }
  const size = bytes.length - start;
  if (size < Number(end)) throw endsEarly();
  if (size > Number(end)) throw new InvalidRelease("the file continues after its last tensor");
  const tensors = new Map();
  for (const { name, begin, stop, shape } of entries) {
    const part = bytes.slice(start + Number(begin), start + Number(stop));
    tensors.set(name, { shape, bytes: part, values: floats(part) });
  }
  return tensors;
}

/** Return the offsets and the shape of a tensor. */
function readEntry([name, entry]) {
  const valid = entry instanceof Map && [...entry.keys()].sort().join() === ENTRY.join();
  if (/[^\u0000-\u007f]/.test(name)) {
    throw new InvalidRelease(`tensor ${shown(name)} has an invalid name`);
  }
  if (!valid) {
    throw new InvalidRelease(`tensor ${shown(name)} is not described as in safetensors`);
  }
  if (entry.get("dtype") !== "F64") {
    throw new InvalidRelease(`tensor ${shown(name)} has type ${shown(entry.get("dtype"))}, not F64`);
  }
  const [sizes, offsets] = [entry.get("shape"), entry.get("data_offsets")];
  if (!naturals(sizes) || sizes.length > 2 || sizes.some((size) => size > BigInt(LARGEST_DIM))) {
    throw new InvalidRelease(`tensor ${shown(name)} has an invalid shape`);
  }
  const size = 8n * sizes.reduce((product, length) => product * length, 1n);
  if (!naturals(offsets) || offsets.length !== 2 || offsets[1] - offsets[0] !== size) {
    throw new InvalidRelease(`tensor ${shown(name)} has offsets that do not match its shape`);
  }
  return { name, begin: offsets[0], stop: offsets[1], shape: sizes.map(Number) };
}

function naturals(value) {
  return Array.isArray(value) && value.every((n) => typeof n === "bigint" && n >= 0n);
}

/** Read little-endian float64 numbers, whatever the machine's byte order. */
function floats(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Float64Array.from({ length: bytes.length / 8 }, (_, i) => view.getFloat64(8 * i, true));
}

function endsEarly() {
  return new InvalidRelease("the file is truncated or not a release: it ends too early");
}
