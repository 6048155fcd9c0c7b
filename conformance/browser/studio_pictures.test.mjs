// What the pages of the studio look like: each is compared with its picture in pictures/, in both themes and on two widths. It needs no server.
//   node --test studio_pictures.test.mjs                  compares; what differs is written to $PICTURES_DIFFERENT (or a temporary folder)
//   PICTURES=update node --test studio_pictures.test.mjs  takes them anew
import { after, describe, test } from "node:test";
import assert from "node:assert/strict";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { crc32, deflateSync } from "node:zlib";
import { launch, openPage } from "./browser.mjs";
import { now, pages, serve } from "./pictures.mjs";

const folder = new URL("pictures/", import.meta.url).pathname;
const update = process.env.PICTURES === "update";
const origin = "http://studio.test";

/** How many pixels may differ in any square of 64 by 64. A changed word has about 500, a lost icon 300, however large the picture; pixels at the edges of letters are fewer. */
const tolerance = 60;
const half = 32; // squares overlap by half, so that no word is divided among four of them

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

/** How many pixels of two pictures differ, by more than the edge of a letter that is drawn elsewhere in its pixel: in all (n), and in the square with most (densest), whose corner is at; null: their sizes differ. */
const differing = (one, other) => tools.evaluate(async ([x, y, half]) => {
  const read = async (data) => {
    const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${data}`)).blob());
    const canvas = new OffscreenCanvas(image.width, image.height);
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, image.width, image.height);
  };
  const [a, b] = [await read(x), await read(y)];
  if (a.width !== b.width || a.height !== b.height) return null;
  const wide = Math.ceil(a.width / half);
  const high = Math.ceil(a.height / half);
  const cells = new Uint32Array((wide + 1) * (high + 1)); // a column and a row more, which stay empty
  let n = 0;
  for (let i = 0; i < a.data.length; i += 4) {
    if (Math.max(Math.abs(a.data[i] - b.data[i]), Math.abs(a.data[i + 1] - b.data[i + 1]), Math.abs(a.data[i + 2] - b.data[i + 2])) <= 24) continue;
    const column = (i / 4) % a.width;
    const row = (i / 4 - column) / a.width;
    cells[Math.floor(row / half) * (wide + 1) + Math.floor(column / half)]++;
    n++;
  }
  let densest = 0;
  let at = [0, 0];
  for (let row = 0; row < high; row++)
    for (let column = 0; column < wide; column++) {
      const i = row * (wide + 1) + column;
      const sum = cells[i] + cells[i + 1] + cells[i + wide + 1] + cells[i + wide + 2];
      if (sum > densest) [densest, at] = [sum, [column * half, row * half]];
    }
  return { n, densest, at };
}, [one.toString("base64"), other.toString("base64"), half]);

/** Whether two pictures look the same, as differing counts. */
const alike = (d) => d !== null && d.densest <= tolerance;

/** Takes the picture of a page that has come to rest. */
async function picture({ path, ready, narrow }, theme, width) {
  const context = await browser.newContext({ viewport: { width, height: width < 500 ? 844 : 800 }, colorScheme: theme, reducedMotion: "reduce", locale: "en-US", timezoneId: "UTC", deviceScaleFactor: 1 });
  try {
    const page = await openPage(context);
    const errors = [];
    page.on("pageerror", (error) => errors.push(String(error)));
    await page.clock.setFixedTime(now);
    const unknown = await serve(context);
    await page.goto(`${origin}/studio/${path}`);
    await page.locator(width < 500 && typeof narrow === "string" ? narrow : ready).first().waitFor();
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
let skip = false; // or why
if (!update && process.env.PICTURES !== "must") {
  const same = existsSync(controlFile) && (await differing(readFileSync(controlFile), await control()));
  if (!same || same.n > 0) skip = "letters look different here: another Chromium or other fonts than those of the pictures";
}

// What a comparison sees, on a page as wide as those of the pictures. It counts on no letters, so it is not skipped.
describe("comparing pictures", () => {
  const dots = (n) => Array.from({ length: n }, (_, i) => `<rect x="${(i * 37) % 1280}" y="${Math.floor((i * 37) / 1280) * 37}" width="1" height="1"/>`).join("");
  const drawn = ({ word = "Delivered", icon = true, dot = "", theme = "light", x = 300 }) =>
    `<body style="margin: 0; background: ${theme === "dark" ? "#111" : "#fff"}; color: ${theme === "dark" ? "#eee" : "#222"}; font: 15px sans-serif"><div style="position: relative; width: 1280px; height: 800px">
      <p style="position: absolute; left: ${x}px; top: 310px; margin: 0">Order 4711: ${word}</p>
      <svg style="position: absolute; left: ${x}px; top: 500px" width="20" height="20" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2">${icon ? '<circle cx="12" cy="12" r="9"/><path d="M4 12h16M12 4v16"/>' : ""}</svg>
      <svg style="position: absolute; left: 0; top: 0" width="1280" height="800" fill="currentColor">${dot}</svg></div>`;
  const cases = [
    ["nothing", {}, true],
    ["a word", { word: "Cancelled" }, false],
    ["a lost word", { word: "" }, false],
    ["a lost icon", { icon: false }, false],
    ["a moved line", { x: 304 }, false],
    ["few pixels everywhere", { dot: dots(700) }, true],
  ];
  for (const theme of ["light", "dark"])
    for (const [name, changes, same] of cases)
      test(`${name}, ${theme}`, { timeout: 120_000 }, async () => {
        const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, deviceScaleFactor: 1 });
        try {
          const page = await context.newPage();
          const take = async (what) => (await page.setContent(drawn({ theme, ...what })), small(await page.screenshot()));
          const before = await take({});
          const d = await differing(before, await take(changes));
          assert.equal(alike(d), same, JSON.stringify(d));
        } finally {
          await context.close();
        }
      });
});

const inDocs = (name) => new URL(`../../docs/studio-${name}.png`, import.meta.url).pathname;

let different = process.env.PICTURES_DIFFERENT;
describe("pictures of the studio", { concurrency: 2 }, () => {
  if (update)
    test("the control", async () => {
      mkdirSync(folder, { recursive: true });
      writeFileSync(controlFile, await control());
    });
  after(() => {
    for (const { name } of update ? pages.filter((p) => p.docs) : []) copyFileSync(join(folder, `${name}-light-1280.png`), inDocs(name));
  });
  for (const { name } of pages.filter((p) => p.docs))
    test(`${name} in the documentation`, { skip: update && "they are taken anew" }, () => assert.ok(readFileSync(inDocs(name)).equals(readFileSync(join(folder, `${name}-light-1280.png`))), `docs/studio-${name}.png is another picture: PICTURES=update`));
  for (const page of pages)
    for (const theme of ["light", "dark"])
      for (const width of page.narrow ? [1280, 390] : [1280]) {
        const name = `${page.name}-${theme}-${width}`;
        test(name, { timeout: 120_000, skip }, async () => {
          const png = await picture(page, theme, width);
          if (process.env.PICTURES_PNG) {
            mkdirSync(process.env.PICTURES_PNG, { recursive: true });
            writeFileSync(join(process.env.PICTURES_PNG, `${name}.png`), png);
          }
          const taken = await small(png);
          const file = join(folder, `${name}.png`);
          const d = existsSync(file) ? await differing(readFileSync(file), taken) : null;
          const equal = alike(d);
          if (update) {
            if (!equal) writeFileSync(file, taken);
            return;
          }
          if (equal) return;
          different ??= mkdtempSync(join(tmpdir(), "studio-pictures-"));
          mkdirSync(different, { recursive: true });
          writeFileSync(join(different, `${name}.png`), png);
          assert.fail(`${name} looks different${d ? ` in ${d.n} pixels, ${d.densest} of them near ${d.at.join(", ")}` : ""}: see ${different}/${name}.png. If it should, PICTURES=update node --test studio_pictures.test.mjs`);
        });
      }
});
