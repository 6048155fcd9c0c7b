// What the pages of the studio look like: each is compared with its picture in pictures/, in both themes and on two widths. It needs no server.
//   node --test studio_pictures.test.mjs                  compares; what differs is written to $PICTURES_DIFFERENT (or a temporary folder)
//   PICTURES=update node --test studio_pictures.test.mjs  takes them anew
import { after, describe, test } from "node:test";
import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { crc32, deflateSync } from "node:zlib";
import { launch, openPage } from "./browser.mjs";
import { now, pages, serve } from "./pictures.mjs";

const folder = new URL("pictures/", import.meta.url).pathname;
const update = process.env.PICTURES === "update";
const origin = "http://studio.test";

/** How many of a thousand pixels may differ. A button, a word or a line that moves is more; the edges of letters are not counted. */
const tolerance = 1;

const browser = await launch();
const tools = await (await browser.newContext()).newPage();
after(() => browser.close());

/** The same picture with at most 256 colours, none of them far from what it was: an eighth of the size. */
async function small(png) {
  const { width, height, colours, pixels } = await tools.evaluate(async (data) => {
    const image = await createImageBitmap(await (await fetch(data)).blob());
    const canvas = new OffscreenCanvas(image.width, image.height);
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    const { width, height, data: all } = context.getImageData(0, 0, image.width, image.height);
    const near = (i) => ((all[i] & 0xf8) << 16) | ((all[i + 1] & 0xf8) << 8) | (all[i + 2] & 0xf8);
    const often = new Map(); // how often a colour is there, and the first that is so near
    for (let i = 0; i < all.length; i += 4) {
      const seen = often.get(near(i));
      seen ? seen.n++ : often.set(near(i), { n: 1, colour: [all[i], all[i + 1], all[i + 2]] });
    }
    const kept = [...often].sort((x, y) => y[1].n - x[1].n || x[0] - y[0]).slice(0, 256);
    const colours = kept.map(([, { colour }]) => colour);
    const index = new Map(kept.map(([key], i) => [key, i]));
    for (const [key, { colour }] of often) {
      if (index.has(key)) continue;
      const far = (c) => c.reduce((sum, v, i) => sum + (v - colour[i]) ** 2, 0);
      index.set(key, colours.reduce((best, c, i) => (far(c) < far(colours[best]) ? i : best), 0));
    }
    let text = "";
    for (let i = 0; i < all.length; i += 4) text += String.fromCharCode(index.get(near(i)));
    return { width, height, colours, pixels: btoa(text) };
  }, `data:image/png;base64,${png.toString("base64")}`);
  const chunk = (type, body) => {
    const head = Buffer.from(type, "latin1");
    const sizes = Buffer.alloc(8);
    sizes.writeUInt32BE(body.length, 0);
    sizes.writeUInt32BE(crc32(Buffer.concat([head, body])), 4);
    return Buffer.concat([sizes.subarray(0, 4), head, body, sizes.subarray(4)]);
  };
  const size = Buffer.alloc(13);
  size.writeUInt32BE(width, 0);
  size.writeUInt32BE(height, 4);
  size.set([8, 3], 8); // a byte for each pixel, its colour in a palette
  const raw = Buffer.from(pixels, "base64");
  const lines = Buffer.alloc((width + 1) * height);
  for (let y = 0; y < height; y++) raw.copy(lines, y * (width + 1) + 1, y * width, (y + 1) * width);
  return Buffer.concat([Buffer.from("\x89PNG\r\n\x1a\n", "latin1"), chunk("IHDR", size), chunk("PLTE", Buffer.from(colours.flat())), chunk("IDAT", deflateSync(lines, { level: 9 })), chunk("IEND", Buffer.alloc(0))]);
}

/** How many pixels of two pictures differ, by more than the edge of a letter that is drawn elsewhere in its pixel; of how many; null: their sizes differ. */
const differing = (one, other) => tools.evaluate(async ([x, y]) => {
  const read = async (data) => {
    const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${data}`)).blob());
    const canvas = new OffscreenCanvas(image.width, image.height);
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, image.width, image.height);
  };
  const [a, b] = [await read(x), await read(y)];
  if (a.width !== b.width || a.height !== b.height) return null;
  let n = 0;
  for (let i = 0; i < a.data.length; i += 4) if (Math.max(Math.abs(a.data[i] - b.data[i]), Math.abs(a.data[i + 1] - b.data[i + 1]), Math.abs(a.data[i + 2] - b.data[i + 2])) > 24) n++;
  return { n, of: a.width * a.height };
}, [one.toString("base64"), other.toString("base64")]);

/** Takes the picture of a page that has come to rest. */
async function picture({ path, ready }, theme, width) {
  const context = await browser.newContext({ viewport: { width, height: width < 500 ? 844 : 800 }, colorScheme: theme, reducedMotion: "reduce", locale: "en-US", timezoneId: "UTC", deviceScaleFactor: 1 });
  try {
    const page = await openPage(context);
    const errors = [];
    page.on("pageerror", (error) => errors.push(String(error)));
    await page.clock.setFixedTime(now);
    const unknown = await serve(context);
    await page.goto(`${origin}/studio/${path}`);
    await page.locator(ready).first().waitFor();
    // The same letters on every machine that has the fonts of Chromium's packages; a caret blinks.
    await page.addStyleTag({ content: ":root { font-family: 'DejaVu Sans', sans-serif !important; } code, pre, .code textarea, textarea.code, .json, .log-lines { font-family: 'DejaVu Sans Mono', monospace !important; } * { caret-color: transparent !important; }" });
    await page.evaluate(() => document.fonts.ready.then(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))));
    // At rest: two pictures in a row are equal.
    let before = null;
    for (let n = 0; n < 20; n++) {
      const taken = await page.screenshot({ animations: "disabled", caret: "hide" });
      if (before && taken.equals(before)) {
        assert.deepEqual([errors, unknown], [[], []]);
        return taken;
      }
      before = taken;
      await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    }
    assert.fail("the page does not come to rest");
  } finally {
    await context.close();
  }
}

/** Letters look different where fonts or the browser are others; then nothing can be compared. */
async function control() {
  const context = await browser.newContext({ viewport: { width: 400, height: 60 }, deviceScaleFactor: 1 });
  const page = await context.newPage();
  await page.setContent("<p style=\"font: 15px 'DejaVu Sans'\">Hamburgefonts 0123456789</p><p style=\"font: 13px 'DejaVu Sans Mono'\">{\"key\": [1, 2]}</p>");
  const taken = await page.screenshot();
  await context.close();
  return small(taken);
}

const controlFile = join(folder, "control.png");
let skip = false;
if (!update) {
  const same = existsSync(controlFile) && (await differing(readFileSync(controlFile), await control()));
  if (!same || same.n > 0) skip = "letters look different here: another Chromium or other fonts than those of the pictures";
}

let different = process.env.PICTURES_DIFFERENT;
describe("pictures of the studio", { concurrency: 2, skip: process.env.PICTURES === "must" ? false : skip }, () => {
  if (update)
    test("the control", async () => {
      mkdirSync(folder, { recursive: true });
      writeFileSync(controlFile, await control());
    });
  for (const page of pages)
    for (const theme of ["light", "dark"])
      for (const width of page.narrow ? [1280, 390] : [1280]) {
        const name = `${page.name}-${theme}-${width}`;
        test(name, { timeout: 120_000 }, async () => {
          const png = await picture(page, theme, width);
          if (process.env.PICTURES_PNG) {
            mkdirSync(process.env.PICTURES_PNG, { recursive: true });
            writeFileSync(join(process.env.PICTURES_PNG, `${name}.png`), png);
          }
          const taken = await small(png);
          const file = join(folder, `${name}.png`);
          const d = existsSync(file) ? await differing(readFileSync(file), taken) : null;
          const equal = d !== null && d.n * 1000 <= tolerance * d.of;
          if (update) {
            if (!equal) writeFileSync(file, taken);
            return;
          }
          if (equal) return;
          different ??= mkdtempSync(join(tmpdir(), "studio-pictures-"));
          mkdirSync(different, { recursive: true });
          writeFileSync(join(different, `${name}.png`), png);
          assert.fail(`${name} looks different${d ? ` in ${d.n} of ${d.of} pixels` : ""}: see ${different}/${name}.png. If it should, PICTURES=update node --test studio_pictures.test.mjs`);
        });
      }
});
