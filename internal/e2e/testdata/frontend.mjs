// Opens the page of the frontend template and talks to its agent: node frontend.mjs URL
import { existsSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { chromium } from "playwright-core";

const pages = createServer((request, response) => {
  const name = request.url === "/main.js" ? "main.js" : "index.html";
  response.setHeader("content-type", name === "main.js" ? "text/javascript" : "text/html");
  response.end(readFileSync(`public/${name}`));
}).listen(0, "127.0.0.1");
await new Promise((listening) => pages.once("listening", listening));
const folders = (process.env.PATH ?? "").split(":");
const executablePath = process.env.CHROMIUM ?? ["chromium", "chromium-browser", "google-chrome"].flatMap((name) => folders.map((folder) => `${folder}/${name}`)).find(existsSync);
if (!executablePath) throw new Error("Chromium is missing; on Debian: apt-get install chromium");
const browser = await chromium.launch({ executablePath, args: process.getuid?.() === 0 ? ["--no-sandbox"] : [] });
try {
  const page = await browser.newPage();
  page.on("pageerror", (error) => console.error(String(error)));
  await page.goto(`http://127.0.0.1:${pages.address().port}/?api=${encodeURIComponent(process.argv[2])}`);
  await page.getByLabel("Message").fill("What is 6 times 7?");
  await page.getByRole("button", { name: "Send" }).click();
  await page.getByText("The answer is 42.").waitFor({ timeout: 30_000 });
  await page.reload(); // the conversation is shown again
  await page.getByText("The answer is 42.").waitFor({ timeout: 30_000 });
  console.log(await page.locator("main").innerText());
} finally {
  await browser.close();
  pages.close();
}
