package components

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// project writes files by name, and returns the project of one graph, whose components are in ui.tsx.
func project(t *testing.T, files map[string]string) Project {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return Project{Dir: dir, Sources: []Source{{Graph: "a-b c", File: filepath.Join(dir, "ui.tsx")}}}
}

func build(t *testing.T, p Project) (*Bundle, []Problem, error) {
	t.Helper()
	return Build(t.Context(), p, p.Sources[0])
}

func TestBundle(t *testing.T) {
	t.Parallel()
	p := project(t, map[string]string{
		"ui.tsx": `import * as React from "react"; import { createPortal } from "react-dom"; import { useStreamContext } from "@langchain/langgraph-sdk/react-ui";
			import kit from "@acme/kit/buttons"; import own from "own"; import { help } from "@/help"; import logo from "./logo.svg"; import "./a.css";
			console.log(createPortal, useStreamContext, kit, own, help, logo, process.env.NODE_ENV);
			export default { card: (p: { n: number }) => <React.Fragment>{p.n}</React.Fragment> };`,
		"src/help.ts": `export const help: string = "HELP"`, "logo.svg": "<svg/>", "a.css": ".a { background: url(./logo.svg) }",
		"tsconfig.json":                 `{"compilerOptions": {"jsx": "preserve", "baseUrl": ".", "paths": {"@/*": ["./src/*"]}}}`, // as that of Next.js
		"node_modules/own/package.json": `{"main": "i.js"}`, "node_modules/own/i.js": `module.exports = "OWN" + require("react").version`,
		"node_modules/react/package.json": `{"main": "i.js"}`, "node_modules/react/i.js": `throw new Error("a second React")`,
	})
	p.Shared = []string{"@acme/kit"}
	b, warnings, err := build(t, p)
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Equal(t, "__LGUI_a_b_c", b.Global)
	require.Equal(t, []string{"entrypoint.js", "entrypoint.css"}, b.Names)
	js := string(b.Assets["entrypoint.js"].Body)
	for _, shared := range []string{"react", "react-dom", "react/jsx-runtime", "@langchain/langgraph-sdk/react-ui", "@acme/kit/buttons"} {
		require.Contains(t, js, `Symbol.for("LGUI_REQUIRE")]("`+shared+`")`)
	}
	require.Contains(t, js, "HELP")
	require.Contains(t, js, "OWN")
	require.Contains(t, js, "data:image/svg+xml")
	require.Contains(t, js, `"development"`)
	require.NotContains(t, js, "a second React")
	require.Contains(t, string(b.Assets["entrypoint.css"].Body), "data:image/svg+xml")
	require.NotContains(t, js, p.Dir, "a bundle must not contain paths of the machine")

	p.Minify = true
	small, _, err := build(t, p)
	require.NoError(t, err)
	require.Less(t, small.Size(), b.Size())
	require.NotContains(t, string(small.Assets["entrypoint.js"].Body), `"development"`)
	require.NotEqual(t, b.Assets["entrypoint.js"].Tag, small.Assets["entrypoint.js"].Tag)
}

func TestProblems(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no file":      {nil, "there is no file ui.tsx; create it"},
		"a folder":     {map[string]string{"ui.tsx/a": ""}, "ui.tsx is a folder; name the file whose default export"},
		"syntax":       {map[string]string{"ui.tsx": "const a = 1;\nexport default { a: () => <p> };"}, `ui.tsx:2:33: Unexpected end of file before a closing "p" tag`},
		"no module":    {map[string]string{"ui.tsx": "\nimport a from 'none-such';\nexport default { a };"}, `ui.tsx:2:15: Could not resolve "none-such"; run npm install none-such in the folder`},
		"no part":      {map[string]string{"ui.tsx": "import a from '@a/b/c'; export default { a };"}, `Could not resolve "@a/b/c"; run npm install @a/b in the folder`},
		"no default":   {map[string]string{"ui.tsx": "export const a = 1;"}, `No matching export in "ui.tsx" for import "default"; write export default { name: Component }`},
		"no CSS":       {map[string]string{"ui.tsx": "import './a.css'; export default {};"}, `ui.tsx:1:8: Could not resolve "./a.css"; create the file, or correct its name`},
		"tsconfig":     {map[string]string{"ui.tsx": "export default {}", "tsconfig.json": `{"extends": "./none.json"}`}, ""},
		"another type": {map[string]string{"ui.tsx": "import a from './a.bin'; export default { a };", "a.bin": "\x00"}, `ui.tsx:1:15: No loader is configured for ".bin" files`},
	} {
		_, _, err := build(t, project(t, c.files))
		if c.want == "" {
			require.NoError(t, err, name)
			continue
		}
		var problems Problems
		require.ErrorAs(t, err, &problems, name)
		require.ErrorContains(t, err, c.want, name)
		require.NotContains(t, err.Error(), entryName, "the user does not know this file")
	}
}

func TestBuildEndsWithItsContext(t *testing.T) {
	t.Parallel()
	p := project(t, map[string]string{"ui.tsx": "export default {}"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := Build(ctx, p, p.Sources[0])
	require.ErrorIs(t, err, context.Canceled)
}

// compiler stands for Tailwind: it shows what it was asked.
const compiler = `exports.compile = async (css, o) => {
	const theme = await o.loadStylesheet("tailwindcss", o.base);
	return { root: null, sources: [{ base: o.base, pattern: "./more/**/*.html", negated: false }],
		build: (words) => ".theme { --a: " + theme.content.trim() + " } " + words.filter((w) => /^(p-\[.*\]|m-\d|hover:flex)$/.test(w)).sort().map((w, i) => ".w" + i + " { content: '" + w + "' }").join("\n") };
};`

func TestTailwind(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("Node.js is missing")
	}
	files := map[string]string{
		"ui.tsx": `import { b } from "./b"; import "./a.css"; export default { a: () => <p className="p-[calc(1px+2px)] hover:flex">{b}</p> };`,
		"b.ts":   "export const b = cond ? 'm-1' : `m-2`; declare const cond: boolean;", "unused.ts": "'m-9'", "more/x/y.html": `<p class="m-3">`,
		"a.css": "/* styles */\n@import 'tailwindcss';",
	}
	_, _, err := build(t, project(t, files))
	require.EqualError(t, err, "a.css:2:1: this style sheet uses Tailwind, which is not installed here: run npm install tailwindcss")
	files["node_modules/tailwindcss/package.json"] = `{"main": "lib.js", "exports": {".": {"style": "./index.css", "require": "./lib.js"}}}`
	files["node_modules/tailwindcss/index.css"] = "THEME"
	files["node_modules/tailwindcss/lib.js"] = "exports.no = 1"
	_, _, err = build(t, project(t, files))
	require.ErrorContains(t, err, "needs Tailwind 4")
	files["node_modules/tailwindcss/lib.js"] = compiler
	b, _, err := build(t, project(t, files))
	require.NoError(t, err)
	css := string(b.Assets["entrypoint.css"].Body)
	for _, want := range []string{"THEME", "p-[calc(1px+2px)]", "hover:flex", "m-1", "m-2", "m-3"} {
		require.Contains(t, css, want)
	}
	require.NotContains(t, css, "m-9", "no bundle has this file")
	files["node_modules/tailwindcss/lib.js"] = `exports.compile = async () => { throw new Error("Cannot apply unknown utility class") };`
	_, _, err = build(t, project(t, files))
	require.EqualError(t, err, "a.css:2:1: Tailwind: Cannot apply unknown utility class")
}

func TestSet(t *testing.T) {
	t.Parallel()
	p := project(t, map[string]string{"ui.tsx": "export default { a: 'FIRST' }"})
	p.Sources = append(p.Sources, Source{Graph: "broken", File: filepath.Join(p.Dir, "none.tsx")})
	var log strings.Builder
	s := NewSet(p, slog.New(slog.NewTextHandler(&log, nil)))
	hurried, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Bundle(hurried, "a-b c")
	require.ErrorIs(t, err, context.Canceled, "the first bundle is not made yet")
	require.NoError(t, s.Run(t.Context()))
	text := func() string {
		b, err := s.Bundle(t.Context(), "a-b c")
		require.NoError(t, err)
		return string(b.Assets["entrypoint.js"].Body)
	}
	require.Contains(t, text(), "FIRST")
	b, err := s.Bundle(t.Context(), "broken")
	require.NoError(t, err)
	require.Nil(t, b)
	require.Contains(t, log.String(), "none.tsx")

	require.NoError(t, os.WriteFile(p.Sources[0].File, []byte("export default {"), 0o600))
	s.Rebuild(t.Context(), p)
	require.Contains(t, text(), "FIRST", "what does not bundle stays as it was")
	require.NoError(t, os.WriteFile(p.Sources[0].File, []byte("export default { a: 'SECOND' }"), 0o600))
	s.Rebuild(t.Context(), p)
	require.Contains(t, text(), "SECOND")
	p.Sources = nil
	s.Rebuild(t.Context(), p)
	b, err = s.Bundle(t.Context(), "a-b c")
	require.NoError(t, err)
	require.Nil(t, b)
}
