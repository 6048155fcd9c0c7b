// Package components bundles the React components that graphs show in their clients (`ui` of langgraph.json), in the form that LoadExternalComponent of
// the JavaScript SDK loads: a script that registers a component, and a style sheet for the shadow root that it is in.
package components

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/evanw/esbuild/pkg/api"
)

const (
	// maxBytes of what one graph's components become. All bundles stay in memory.
	maxBytes = 32 << 20
	// maxProblems that a failed bundle names.
	maxProblems = 10
)

// BuildTime is what one bundle may take.
const BuildTime = time.Minute

// Names of the assets, which are those of LangGraph Server.
const (
	script = "entrypoint.js"
	styles = "entrypoint.css"
)

// Source is the components of one graph.
type Source struct {
	Graph string // under whose name they are served
	File  string // absolute path of the module whose default export holds the components by name
}

// Project is what bundles are made of.
type Project struct {
	Dir     string // where the files are, for messages
	Sources []Source
	Shared  []string // packages that the client provides by experimental_loadShare
	Minify  bool     // and leave development checks out
}

// Asset is a file of a bundle. It is immutable.
type Asset struct {
	Type string // content type
	Body []byte
	Gzip []byte // nil when that is not smaller
	Tag  string // for ETag, with quotes
}

// Bundle is the components of one graph. It is immutable.
type Bundle struct {
	Global string           // the variable that the script sets
	Assets map[string]Asset // by name
	Names  []string         // of the assets, the script first
}

// Problem is a place in the files of a project that keeps it from being bundled.
type Problem struct {
	At   string // file:line:column, relative to the folder of the project; "" unknown
	Text string
}

func (p Problem) String() string {
	if p.At == "" {
		return p.Text
	}
	return p.At + ": " + p.Text
}

// Problems say why a bundle was not made.
type Problems []Problem

func (p Problems) Error() string {
	texts := make([]string, len(p))
	for i, one := range p {
		texts[i] = one.String()
	}
	return strings.Join(texts, "; ")
}

var notOfNames = regexp.MustCompile(`[^A-Za-z0-9_]`)

// entry registers a component where the client that loads it looks. A name that does not exist leaves the client's fallback.
const entry = `import components from %s;
export function render(name, id) {
	if (!Object.hasOwn(components, name)) {
		console.error("there is no component " + JSON.stringify(name) + "; there are " + Object.keys(components).join(", "));
		return;
	}
	const place = document.createElement("div");
	document.getElementById(id).shadowRoot.appendChild(place);
	window[Symbol.for("LGUI_EXT_STORE")].respond(id, components[name], place);
}
`

// entryName stands for entry in what the bundler says.
const entryName = "understudy"

// provided are the packages that clients provide, and never a bundle: two copies of React do not work together.
var provided = []string{"react", "react-dom", "@langchain/langgraph-sdk/react", "@langchain/langgraph-sdk/react-ui"}

// inline are files that become part of the script or style sheet.
var inline = []string{".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".avif", ".ico", ".woff", ".woff2", ".ttf", ".otf"}

// Build bundles the components of one graph. The second result is warnings. An error is Problems when the project is at fault.
func Build(ctx context.Context, p Project, source Source) (*Bundle, []Problem, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, BuildTime, fmt.Errorf("it was not bundled within %s", BuildTime))
	defer cancel()
	if info, err := os.Stat(source.File); err != nil {
		return nil, nil, Problems{{Text: fmt.Sprintf("there is no file %s; create it, or name another one under ui in langgraph.json", short(p.Dir, source.File))}}
	} else if info.IsDir() {
		return nil, nil, Problems{{Text: fmt.Sprintf("%s is a folder; name the file whose default export has the components", short(p.Dir, source.File))}}
	}
	global := "__LGUI_" + notOfNames.ReplaceAllString(source.Graph, "_")
	opts := options(ctx, p, source)
	opts.GlobalName = global
	result, err := run(ctx, opts)
	if err != nil {
		return nil, nil, err
	}
	if len(result.Errors) > 0 {
		return nil, nil, problems(result.Errors)
	}
	b := &Bundle{Global: global, Assets: map[string]Asset{}}
	total := 0
	for _, f := range result.OutputFiles {
		total += len(f.Contents)
		switch {
		case total > maxBytes:
			return nil, nil, Problems{{Text: fmt.Sprintf("the bundle has more than %d MiB", maxBytes>>20)}}
		case strings.HasSuffix(f.Path, ".js"):
			b.Assets[script] = asset("text/javascript; charset=utf-8", f.Contents)
		case strings.HasSuffix(f.Path, ".css"):
			b.Assets[styles] = asset("text/css; charset=utf-8", f.Contents)
		}
	}
	for _, name := range []string{script, styles} {
		if _, ok := b.Assets[name]; ok {
			b.Names = append(b.Names, name)
		}
	}
	return b, problems(result.Warnings), nil
}

// run is a build that ends with ctx.
func run(ctx context.Context, opts api.BuildOptions) (api.BuildResult, error) {
	build, failed := api.Context(opts)
	if failed != nil {
		return api.BuildResult{}, problems(failed.Errors)
	}
	defer build.Dispose()
	defer context.AfterFunc(ctx, build.Cancel)()
	result := build.Rebuild()
	return result, context.Cause(ctx)
}

func options(ctx context.Context, p Project, source Source) api.BuildOptions {
	path, _ := json.Marshal(source.File) //nolint:errchkjson // a string
	mode := "development"
	if p.Minify {
		mode = "production"
	}
	loaders := map[string]api.Loader{}
	for _, ext := range inline {
		loaders[ext] = api.LoaderDataURL
	}
	opts := api.BuildOptions{
		Stdin:             &api.StdinOptions{Contents: fmt.Sprintf(entry, path), ResolveDir: p.Dir, Sourcefile: entryName, Loader: api.LoaderJS},
		AbsWorkingDir:     p.Dir,
		Outfile:           filepath.Join(p.Dir, script),
		Bundle:            true,
		Write:             false,
		Platform:          api.PlatformBrowser,
		Format:            api.FormatIIFE,
		Target:            api.ES2022,
		Charset:           api.CharsetUTF8,
		JSX:               api.JSXAutomatic,
		Loader:            loaders,
		MinifyWhitespace:  p.Minify,
		MinifySyntax:      p.Minify,
		MinifyIdentifiers: p.Minify,
		Define:            map[string]string{"process.env.NODE_ENV": `"` + mode + `"`},
		LogLevel:          api.LogLevelSilent,
		LogLimit:          maxProblems,
		LegalComments:     api.LegalCommentsEndOfFile,
	}
	opts.Plugins = []api.Plugin{sharedBy(append(slices.Clone(provided), p.Shared...)), tailwind(ctx, p, opts)}
	return opts
}

// sharedBy makes packages, with all below them, what the client gives for their names.
func sharedBy(packages []string) api.Plugin {
	const namespace = "shared"
	names := make([]string, len(packages))
	for i, name := range packages {
		names[i] = regexp.QuoteMeta(name)
	}
	return api.Plugin{Name: "shared", Setup: func(b api.PluginBuild) {
		b.OnResolve(api.OnResolveOptions{Filter: `^(` + strings.Join(names, "|") + `)(/.*)?$`}, func(args api.OnResolveArgs) (api.OnResolveResult, error) {
			if args.Kind == api.ResolveCSSImportRule || args.Kind == api.ResolveCSSURLToken {
				return api.OnResolveResult{}, nil
			}
			return api.OnResolveResult{Path: args.Path, Namespace: namespace}, nil
		})
		b.OnLoad(api.OnLoadOptions{Filter: `.*`, Namespace: namespace}, func(args api.OnLoadArgs) (api.OnLoadResult, error) {
			name, err := json.Marshal(args.Path)
			text := fmt.Sprintf(`module.exports = globalThis[Symbol.for("LGUI_REQUIRE")](%s);`, name)
			return api.OnLoadResult{Contents: &text, Loader: api.LoaderJS}, err
		})
	}}
}

// inputs are the files of the project that a bundle is made of, without packages.
func inputs(ctx context.Context, p Project, opts api.BuildOptions) ([]string, error) {
	opts.Metafile = true
	opts.Loader = map[string]api.Loader{".css": api.LoaderEmpty}
	for _, ext := range inline {
		opts.Loader[ext] = api.LoaderEmpty
	}
	opts.Plugins = []api.Plugin{sharedBy(append(slices.Clone(provided), p.Shared...))}
	result, err := run(ctx, opts)
	if err != nil {
		return nil, err
	}
	var meta struct {
		Inputs map[string]json.RawMessage `json:"inputs"`
	}
	if len(result.Errors) > 0 { // the build that asks meets them itself
		return nil, nil
	}
	if err := json.Unmarshal([]byte(result.Metafile), &meta); err != nil {
		return nil, err
	}
	var files []string
	for name := range meta.Inputs {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(p.Dir, path)
		}
		if slices.Contains(strings.Split(filepath.ToSlash(name), "/"), "node_modules") || strings.HasPrefix(name, "shared:") || name == entryName {
			continue
		}
		files = append(files, path)
	}
	slices.Sort(files)
	return files, nil
}

func asset(contentType string, body []byte) Asset {
	sum := sha256.Sum256(body)
	a := Asset{Type: contentType, Body: body, Tag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(body); err != nil || w.Close() != nil || packed.Len() >= len(body) {
		return a
	}
	a.Gzip = packed.Bytes()
	return a
}

func problems(messages []api.Message) Problems {
	var list Problems
	for _, m := range messages {
		one := Problem{Text: m.Text + advice(m.Text)}
		if l := m.Location; l != nil && l.File != entryName {
			one.At = fmt.Sprintf("%s:%d:%d", l.File, l.Line, l.Column+1)
		}
		if list = append(list, one); len(list) == maxProblems {
			break
		}
	}
	return list
}

var (
	unresolved = regexp.MustCompile(`^Could not resolve "((?:@[^/"]+/)?[^/"]+)([^"]*)"`)
	noDefault  = regexp.MustCompile(`^No matching export in "[^"]*" for import "default"`)
)

// advice says what to do about an error of the bundler.
func advice(text string) string {
	m := unresolved.FindStringSubmatch(text)
	switch {
	case noDefault.MatchString(text):
		return "; write export default { name: Component }"
	case m == nil:
		return ""
	case m[1] == "." || m[1] == "..":
		return "; create the file, or correct its name"
	}
	return "; run npm install " + m[1] + " in the folder of the project"
}

// short is a path relative to the folder of the project, if it is in it.
func short(dir, path string) string {
	if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

// problemsOf are the places of an error, or its text.
func problemsOf(err error) Problems {
	var list Problems
	if errors.As(err, &list) {
		return list
	}
	return Problems{{Text: err.Error()}}
}
