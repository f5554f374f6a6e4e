/**
 * A canvas to draw a digit on, and its conversion to the encoder's input.
 *
 * The image is made as in MNIST (LeCun, Bottou, Bengio, Haffner 1998): the ink is scaled to fit
 * 20×20 pixels without changing its proportions, each pixel the mean of the area it covers, and placed
 * in 28×28 pixels with its centre of mass in the middle.
 */

export const SIDE = 28;
const FIT = 20;
const BRUSH = 20;
const FAINT = 40; // fainter ink, of 255, does not widen the bounding box

/** Strokes by mouse, finger or pen; the canvas fires "stroke" during and "drawn" after each one. */
export class Drawing {
  #canvas;
  #context;
  #last = null;

  constructor(canvas) {
    this.#canvas = canvas;
    this.#context = canvas.getContext("2d", { willReadFrequently: true });
    Object.assign(this.#context, { lineWidth: BRUSH, lineCap: "round", lineJoin: "round" });
    canvas.addEventListener("pointerdown", (event) => this.#begin(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerup", () => this.#end());
    canvas.addEventListener("pointercancel", () => this.#end());
  }

  /** Remove all ink. */
  clear() {
    this.#context.clearRect(0, 0, this.#canvas.width, this.#canvas.height);
  }

  /** Put a 28×28 image of bytes on the canvas, tilted by degrees. */
  async paint(bytes, degrees = 0) {
    const image = new ImageData(SIDE, SIDE);
    bytes.forEach((ink, i) => (image.data[4 * i + 3] = ink));
    const bitmap = await createImageBitmap(image);
    const { width, height } = this.#canvas;
    this.clear();
    this.#context.save();
    this.#context.translate(width / 2, height / 2);
    this.#context.rotate((degrees * Math.PI) / 180);
    this.#context.drawImage(bitmap, -width / 2, -height / 2, width, height);
    this.#context.restore();
    this.#fire("drawn");
  }

  /** Return the image, 784 numbers of 0 to 255, or null if nothing is drawn. */
  image() {
    const { width, height } = this.#canvas;
    const { data } = this.#context.getImageData(0, 0, width, height);
    return asDigit(Uint8Array.from({ length: width * height }, (_, i) => data[4 * i + 3]), width);
  }

  #begin(event) {
    this.#canvas.setPointerCapture(event.pointerId);
    this.#last = this.#place(event);
    this.#line(this.#last);
  }

  #move(event) {
    if (!this.#last) return;
    const coalesced = event.getCoalescedEvents?.() ?? [];
    for (const step of coalesced.length ? coalesced : [event]) this.#line(this.#place(step));
  }

  #end() {
    if (!this.#last) return;
    this.#last = null;
    this.#fire("drawn");
  }

  #line(to) {
    this.#context.beginPath();
    this.#context.moveTo(...this.#last);
    this.#context.lineTo(...to);
    this.#context.stroke();
    this.#last = to;
    this.#fire("stroke");
  }

  #place(event) {
    const box = this.#canvas.getBoundingClientRect();
    const scale = this.#canvas.width / box.width;
    return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  }

  #fire(name) {
    this.#canvas.dispatchEvent(new Event(name));
  }
}

/** Put a 28×28 image of ink on a canvas of that size. */
export function showImage(canvas, image) {
  canvas.width = canvas.height = SIDE;
  const shown = new ImageData(SIDE, SIDE);
  image.forEach((ink, i) => (shown.data[4 * i + 3] = ink));
  canvas.getContext("2d").putImageData(shown, 0, 0);
}

/** Return ink of any size as a 28×28 image, or null for an empty drawing. */
export function asDigit(ink, width) {
  const box = boundsOf(ink, width);
  if (!box) return null;
  const scale = FIT / Math.max(box.width, box.height);
  const columns = Math.max(1, Math.round(box.width * scale));
  const rows = Math.max(1, Math.round(box.height * scale));
  const small = shrunk(ink, width, box, columns, rows);
  let [mass, x, y] = [0, 0, 0];
  small.forEach((value, i) => {
    mass += value;
    x += value * ((i % columns) + 0.5);
    y += value * (Math.floor(i / columns) + 0.5);
  });
  const left = inside(Math.round(SIDE / 2 - x / mass), columns);
  const top = inside(Math.round(SIDE / 2 - y / mass), rows);
  const image = new Uint8Array(SIDE * SIDE);
  small.forEach((value, i) => {
    image[(top + Math.floor(i / columns)) * SIDE + left + (i % columns)] = Math.round(value);
  });
  return image;
}

const inside = (start, size) => Math.max(0, Math.min(SIDE - size, start));

function boundsOf(ink, width) {
  let [left, top, right, bottom] = [Infinity, Infinity, -1, -1];
  ink.forEach((value, i) => {
    if (value < FAINT) return;
    const [x, y] = [i % width, Math.floor(i / width)];
    [left, right] = [Math.min(left, x), Math.max(right, x)];
    [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
  });
  return right < 0 ? null : { left, top, width: right - left + 1, height: bottom - top + 1 };
}

/** Return the box scaled to columns and rows; each pixel is the mean of the area it covers. */
function shrunk(ink, width, box, columns, rows) {
  const across = covers(box.left, box.width, columns);
  const down = covers(box.top, box.height, rows);
  const out = new Float64Array(columns * rows);
  down.forEach((lines, row) => {
    across.forEach((cells, column) => {
      let sum = 0;
      for (const [y, high] of lines) {
        for (const [x, wide] of cells) sum += high * wide * ink[y * width + x];
      }
      out[row * columns + column] = sum;
    });
  });
  return out;
}

/** Return, for each of `count` parts of a length, the positions it covers and their shares. */
function covers(start, length, count) {
  const step = length / count;
  return Array.from({ length: count }, (_, part) => {
    const [low, high] = [part * step, (part + 1) * step];
    const shares = [];
    for (let at = Math.floor(low); at < Math.min(high, length); at++) {
      const share = (Math.min(high, at + 1) - Math.max(low, at)) / step;
      if (share > 0) shares.push([start + at, share]);
    }
    return shares;
  });
}
