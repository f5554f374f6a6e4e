/** The public networks and numbers, read from safetensors files of this page's origin. */

const READERS = {
  I8: [1, (view, at) => view.getInt8(at)],
  U8: [1, (view, at) => view.getUint8(at)],
  F16: [2, (view, at) => half(view.getUint16(at, true))],
  F32: [4, (view, at) => view.getFloat32(at, true)],
  F64: [8, (view, at) => view.getFloat64(at, true)],
};

/** Return the value of a 16-bit float (IEEE 754). */
function half(bits) {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const size = exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction;
  return bits & 0x8000 ? -size : size;
}

/** Read all tensors: name → {shape, values}. */
function readTensors(buffer) {
  const view = new DataView(buffer);
  const start = 8 + Number(view.getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, start - 8)));
  delete header.__metadata__;
  const read = ([name, { dtype, shape, data_offsets: [begin, end] }]) => {
    const [size, number] = READERS[dtype];
    const values = new Float64Array((end - begin) / size);
    for (let i = 0; i < values.length; i++) values[i] = number(view, start + begin + size * i);
    return [name, { shape, values }];
  };
  return new Map(Object.entries(header).map(read));
}

/** Return a function from the name of a tensor to its numbers. */
export function readNumbers(buffer) {
  const tensors = readTensors(buffer);
  return (name) => tensors.get(name).values;
}

/** Affine layers with ReLU between them. */
export class Network {
  #layers;

  /** `names` lists the names of each layer's weight and bias. */
  constructor(buffer, names) {
    const tensors = readTensors(buffer);
    this.#layers = names.map(([weight, bias]) => ({
      columns: tensors.get(weight).shape[1],
      weight: tensors.get(weight).values,
      bias: tensors.get(bias).values,
    }));
  }

  /** The number of outputs. */
  get size() {
    return this.#layers.at(-1).bias.length;
  }

  /** Return the outputs of the last layer. */
  apply(input) {
    return this.#layers.reduce((x, { columns, weight, bias }, depth) => {
      const last = depth === this.#layers.length - 1;
      return bias.map((shift, row) => {
        let sum = shift;
        for (let j = 0, at = row * columns; j < columns; j++, at++) sum += weight[at] * x[j];
        return last ? sum : Math.max(sum, 0);
      });
    }, input);
  }

  /** Return the index of the largest output, the first of equal ones. */
  answer(input) {
    const scores = this.apply(input);
    return scores.indexOf(Math.max(...scores));
  }
}
