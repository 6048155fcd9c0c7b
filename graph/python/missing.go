package python

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"understudy/graph"
)

var (
	notThere = regexp.MustCompile(`ModuleNotFoundError: No module named '([\w.]+)'`)
	noName   = regexp.MustCompile(`ImportError: cannot import name '\w+' from '([\w.]+)' \(.*(?:site|dist)-packages`)
	tellsHow = regexp.MustCompile("pip install ((?:-U |--upgrade )?[`'\"]?[\\w.-]+(?:\\[[\\w,.-]+\\])?)")
	// A name that a module lacks, wherever Python found the module.
	fromProject = regexp.MustCompile(`ImportError: cannot import name '\w+' from '([\w.]+)'`)
	noAttribute = regexp.MustCompile(`AttributeError: module '([\w.]+)' has no attribute '\w+'`)
	noPackage   = "ImportError: attempted relative import with no known parent package"
	unsetName   = regexp.MustCompile(`File "[^"]*\bos(?:\.py|>)", line \d+, in __getitem__\n(?: .*\n)*KeyError: '(\w+)'`)
	aKey        = regexp.MustCompile(`\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_(?:KEY|TOKEN|SECRET)\b`)
	choice      = regexp.MustCompile(aKey.String() + "[`'\"]?(?:(?:,| or|, or)(?: the environment variable)? [`'\"]?" + aKey.String() + "[`'\"]?)+")
	wantsKey    = regexp.MustCompile(`(?s)\n\S.*[Ee]nvironment variable.*` + aKey.String() + `|\n\S.*` + aKey.String() + `.*[Ee]nvironment variable`)
	lastError   = regexp.MustCompile(`(?m)^(?:[\w.]+\.)?(ModuleNotFoundError|ImportError): .*`)
)

// noGraph is what to do about a factory that makes something else.
const noGraph = "return a graph from the function that langgraph.json names"

// mistakes are errors that LangGraph or the worker raises for a graph in which no frame is the graph's own, by how the last exception begins.
var mistakes = []struct {
	text *regexp.Regexp
	fix  string
}{
	{regexp.MustCompile(`InvalidUpdateError: Expected dict, got`), "return a dict with keys of the state from the node, or None for no change"},
	{regexp.MustCompile(`InvalidUpdateError: At key '(\w+)': Can receive only one value per step`), "nodes of one step write the same key: give it a reducer, such as Annotated[list, operator.add], or let one node write it"},
	{regexp.MustCompile(`(InvalidUpdateError: Must write to at least one of|EmptyInputError)`), "send an input with at least one key of the state of the graph"},
	{regexp.MustCompile(`GraphRecursionError`), "end the loop of the graph, or raise recursion_limit in the configuration of the run or assistant"},
	{regexp.MustCompile(`Found AIMessages with tool_calls that do not have a corresponding ToolMessage`), "answer each tool call with a ToolMessage before the model is called again"},
	{regexp.MustCompile(`Message dict must contain 'role' and 'content' keys`), `give messages role and content: {"role": "user", "content": "…"}`},
	{regexp.MustCompile(`ValueError: Could not find graph '`), "fix the name after the colon in graphs of langgraph.json, or define it in the file"},
	{regexp.MustCompile(`ValueError: Graph path '.*' is not of the form`), "write the path, a colon and the name in graphs of langgraph.json"},
	{regexp.MustCompile(`FileNotFoundError: No such file: `), "fix the path before the colon in graphs of langgraph.json, or create the file"},
	{regexp.MustCompile(`TypeError: \w+ is neither a graph nor a function that makes one`), "name the graph after the colon in graphs of langgraph.json: the result of compile(), or a function that returns it"},
	{regexp.MustCompile(`\ncannot be saved: node '.*' returned a '`), "return data that can be saved; create other objects inside of the node, or pass them by the context of the run"},
	{regexp.MustCompile(`\ncannot be saved: the run has a '`), "keep in the state what can be saved; create other objects inside of nodes, or pass them by the context of the run"},
	{regexp.MustCompile(`FrameTooLarge: `), "keep data of this size out of the state and of what is streamed: write it to a file or an object store, and pass on its name"},
	{regexp.MustCompile(`TypeError: Graph factory .* made a .*, not a graph`), noGraph},
	{
		regexp.MustCompile(`\nRuntimeError: (?:asyncio\.run\(\) cannot be called from a running event loop|Cannot run the event loop while another loop is running|[Tt]his event loop is already running)`),
		"await the coroutine in place of running it: make the function `async def`, a node as well as a factory",
	},
	{regexp.MustCompile(`\nSystemExit(?:: |\n|$)`), "raise an exception that says what is wrong in place of calling sys.exit: the server serves other graphs, too"},
	{regexp.MustCompile(`\n(?:bdb\.)?BdbQuit\b`), "remove breakpoint(): a worker has no terminal; attach a debugger that listens, such as debugpy"},
	{regexp.MustCompile(`\nEOFError: EOF when reading a line`), "ask with interrupt() of langgraph.types in place of input(): a worker has no terminal"},
	// The clients of OpenAI, Anthropic and those that are made like them, and what LangChain makes of their exceptions.
	{regexp.MustCompile(`\n\S*(?:AuthenticationError|PermissionDeniedError): Error code: 40[13]`), "check the key of the model, such as OPENAI_API_KEY, in the file that env of langgraph.json names, or in the environment of the server, and that its account may use the model"},
	{regexp.MustCompile(`\n\S*NotFoundError: Error code: 404`), "check the name of the model, and the address of the provider (base_url) if one is set"},
	{regexp.MustCompile(`\n\S*RateLimitError: Error code: 429`), "wait and try again, or raise the limits or the credit of the account at the provider; limits.concurrent_runs and concurrency in langgraph.json make fewer calls at a time"},
	{regexp.MustCompile(`\n\S*(?:APIConnectionError|OpenAIConnectionError): Connection error`), "see that this machine reaches the provider of the model: its address (base_url, OPENAI_BASE_URL), the name servers, and the proxy (HTTPS_PROXY)"},
	{regexp.MustCompile(`\n\S*(?:APITimeoutError|APIStatusError|InternalServerError): (?:Request timed out|Error code: 5\d\d)`), "the provider of the model does not answer, or fails: try again later, or raise timeout and max_retries of the model"},
	{regexp.MustCompile(`MultipleSubgraphsError`), "call one subgraph with a checkpointer for each node, or compile the others with checkpointer=False"},
}

// circular is an import that meets a module which is still being imported.
var circular = regexp.MustCompile(`partially initialized module '([\w.]+)'`)

// hidden is an import of a part of a package in whose place Python finds a file of the same name; forbidden one of a file that may not be read, and absent one that is not there.
var (
	hidden    = regexp.MustCompile(`No module named '[\w.]+'; '([\w.]+)' is not a package`)
	forbidden = regexp.MustCompile(`\nPermissionError: \[Errno 13\] Permission denied: '([^'\n]+)'`)
	absent    = regexp.MustCompile(`\nFileNotFoundError: \[Errno 2\] No such file or directory: '([^'\n]+)'`)
)

// hides returns what to do about a file or folder of the project, in one of dirs, that hides a package; "" when text is of something else.
func hides(python, text string, dirs []string) string {
	if m := hidden.FindStringSubmatch(text); m != nil {
		// An installed module, such as six, may be a file, too: then the import is wrong.
		if at, what := inProject(m[1], dirs); what == "file" {
			return "rename the file " + at + ": it hides the package " + m[1]
		}
		return "correct the import: " + m[1] + " is a module without parts"
	}
	name, part := "", ""
	for _, pattern := range []*regexp.Regexp{notThere, fromProject, noAttribute} {
		if m := pattern.FindStringSubmatch(text); m != nil {
			name, part, _ = strings.Cut(m[1], ".")
			break
		}
	}
	if name == "" || part == "" && notThere.MatchString(text) {
		return ""
	}
	at, what := inProject(name, dirs)
	switch {
	case at == "":
	case installed(python, name) || library(name):
		return "rename the " + what + " " + at + ": it hides the package " + name
	case notThere.MatchString(text):
		return "create " + name + "." + part + ", or correct the import; if it is in an installed package, rename the " + what + " " + at + ", which hides it"
	}
	return ""
}

// hidesItself returns what to do about a file of the project that imports a package of its own name; "" when text is of something else.
func hidesItself(python, text string, dirs []string) string {
	m := circular.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	at, what := inProject(m[1], dirs)
	if at == "" || !installed(python, m[1]) && distribution(m[1]) == "" && !slices.Contains(standard, m[1]) {
		return ""
	}
	return "rename the " + what + " " + at + ": it hides the package " + m[1]
}

// standard are modules of Python for which files of projects are named by mistake.
var standard = strings.Fields(`abc argparse array ast asyncio base64 bisect calendar cmd code codecs collections concurrent contextlib contextvars copy csv dataclasses datetime decimal difflib email enum
	errno fnmatch fractions functools gc getpass glob graphlib gzip hashlib heapq hmac html http importlib inspect io ipaddress itertools json keyword linecache locale logging math mimetypes multiprocessing numbers
	operator os pathlib pickle pkgutil platform pprint profile queue random re reprlib sched secrets select selectors shelve shlex shutil signal site socket sqlite3 ssl stat statistics string struct subprocess symtable
	sys tempfile test textwrap threading time timeit token tokenize trace traceback types typing unicodedata unittest urllib uuid warnings weakref xml zipfile zoneinfo`)

// aboutModule is an error that names the module which lacks something.
var aboutModule = regexp.MustCompile(`(?:module '|from '|No module named ')([\w]+)[\w.]*'`)

// hidesStandard returns what to do about a file or folder of the project, in one of dirs, that hides a module of Python, when text is about it; else "".
func hidesStandard(text string, dirs []string) string {
	var candidates []string
	for _, m := range aboutModule.FindAllStringSubmatch(text, -1) {
		candidates = append(candidates, m[1])
	}
	for _, file := range fileOf.FindAllStringSubmatch(text, -1) {
		dir, name := filepath.Split(file[1])
		if name == "__init__.py" {
			dir, name = filepath.Split(filepath.Clean(dir))
		}
		if slices.Contains(dirs, filepath.Clean(dir)) {
			candidates = append(candidates, strings.TrimSuffix(name, ".py"))
		}
	}
	for _, name := range candidates {
		if at, what := inProject(name, dirs); at != "" && slices.Contains(standard, name) {
			return "rename the " + what + " " + at + ": it hides the module " + name + " of Python"
		}
	}
	return ""
}

// inProject returns the folder or file of a top-level module that Python finds in dirs; "" when there is none.
func inProject(name string, dirs []string) (at, what string) {
	for _, dir := range dirs {
		for _, m := range []struct{ file, at, what string }{{name + "/__init__.py", name, "folder"}, {name + ".py", name + ".py", "file"}} {
			if _, err := os.Stat(filepath.Join(dir, m.file)); err == nil {
				return filepath.Join(dir, m.at), m.what
			}
		}
	}
	return "", ""
}

// installed reports whether a virtual environment, or the folder of an interpreter, has a package of that name.
func installed(python, name string) bool {
	prefix := filepath.Dir(filepath.Dir(python))
	for _, file := range []string{name, name + ".py"} {
		for _, site := range []string{"lib*/python*/site-packages", "lib*/python*/dist-packages", "Lib/site-packages"} {
			if found, _ := filepath.Glob(filepath.Join(prefix, site, file)); len(found) > 0 {
				return true
			}
		}
	}
	return false
}

// library reports whether a module is one that workers import.
func library(name string) bool {
	return strings.HasPrefix(name, "langgraph") || strings.HasPrefix(name, "langchain") || name == "ormsgpack" || name == "orjson"
}

// FixFailure returns what to do about an exception of a graph, in the words of its traceback: the command that installs what is missing, the variable to set,
// or the file or folder of the project to rename, whose modules Python finds in dirs; "" when that is unknown.
func FixFailure(python, traceback string, dirs ...string) string {
	if name := variable(traceback); name != "" {
		return "set " + name + " in the file that env of langgraph.json names, such as .env, or in the environment of the server"
	}
	end := "\n" + lastException(traceback)
	for _, m := range mistakes {
		if m.text.MatchString(end) {
			return m.fix
		}
	}
	if hidden := cmp.Or(hidesItself(python, end, dirs), hidesStandard(end, dirs)); hidden != "" {
		return hidden
	}
	if m := circular.FindStringSubmatch(end); m != nil {
		return m[1] + " and a module that it imports import each other: move what both need to a third one, or import inside of the function that uses it"
	}
	if m := forbidden.FindStringSubmatch(end); m != nil {
		return "let the user of the server use " + m[1] + ", or start the server as its owner"
	}
	if m := absent.FindStringSubmatch(end); m != nil {
		return absentFix(m[1])
	}
	if m := noAttribute.FindString(end); m != "" {
		return hides(python, m, dirs)
	}
	all := lastError.FindAllString(traceback, -1)
	if len(all) == 0 {
		return ""
	}
	text := all[len(all)-1]
	if fix := hides(python, text, dirs); fix != "" {
		return fix
	}
	if m := tellsHow.FindStringSubmatch(text); m != nil {
		return pip(python) + " install " + strings.NewReplacer("`", "", "'", "", `"`, "").Replace(m[1])
	}
	if m := notThere.FindStringSubmatch(text); m != nil {
		return fixMissing(python, m[1], traceback[:strings.LastIndex(traceback, text)], dirs)
	}
	if m := noName.FindStringSubmatch(text); m != nil {
		if known := distribution(m[1]); known != "" {
			return pip(python) + " install --upgrade " + known
		}
		return "the installed package of " + m[1] + " lacks this name: correct the import, or install another version with " + pip(python)
	}
	if strings.HasPrefix(text, noPackage) {
		return `name the module in place of its file: "package.module:graph" in graphs of langgraph.json, with the folder of the package in dependencies`
	}
	return ""
}

// absentFix returns what to do about a file that is not there.
func absentFix(path string) string {
	if filepath.IsAbs(path) {
		return "create " + path + ", or correct the path"
	}
	return "create " + path + ", or correct the path: it begins in the folder of langgraph.json"
}

// FixFactory returns what to do about the error of Build, and whether each run of the graph fails.
func FixFactory(err error) (fix string, always bool) {
	var f *graph.Failure
	switch known := errors.As(err, &f); {
	case known && strings.HasSuffix(f.Message, ", not a graph"): // of graphs.py
		return noGraph, true
	case known && f.Fix != "":
		return f.Fix, false
	}
	return "give what it reads from the configuration a default: without one, schemas are unknown and runs that do not set it fail", false
}

// variable returns the environment variable that an exception misses; "" when it is about something else.
func variable(traceback string) string {
	if all := unsetName.FindAllStringSubmatch(traceback, -1); all != nil {
		return all[len(all)-1][1]
	}
	last := lastException(traceback)
	if !wantsKey.MatchString("\n" + last) {
		return ""
	}
	names := aKey.FindAllString(last, -1)
	if either := choice.FindString(last); either != "" { // of several the usual one: OPENAI_API_KEY, and not OPENAI_ADMIN_KEY
		names = aKey.FindAllString(either, -1)
		slices.Reverse(names)
		if usual := slices.IndexFunc(names, func(name string) bool { return strings.HasSuffix(name, "_API_KEY") }); usual >= 0 {
			return names[usual]
		}
	}
	return names[len(names)-1]
}

// failureOf returns the failure that a worker reports, with advice when an import failed.
func (w *worker) failureOf(kind, text, detail string) *graph.Failure {
	return &graph.Failure{Type: kind, Message: text, Detail: detail, Fix: w.gen.fix(detail)}
}

// maxFixes bounds the tracebacks, and what to do about them, that a generation remembers, in bytes.
const maxFixes = 256 << 10

// fix is FixFailure, which may search the project: that is done once for the same traceback, because clients may let a graph fail as often as they like.
func (g *generation) fix(traceback string) string {
	if fix, known := g.fixes.Get(traceback); known {
		return fix
	}
	fix := FixFailure(g.opts.Python, traceback, g.opts.dirs()...)
	g.fixes.Put(traceback, fix, len(traceback)+len(fix))
	return fix
}
