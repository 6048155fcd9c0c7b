package python_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph/python"
	"understudy/internal/logtest"
)

func TestFixFailure(t *testing.T) {
	t.Parallel()
	const py = "/app/.venv/bin/python"
	unknown := func(module string) string {
		return "install the package that has the module " + module + " (its name on PyPI may differ): " + py + " -m pip install PACKAGE; if the module is yours, add its folder to dependencies in langgraph.json"
	}
	const unset = " in the file that env of langgraph.json names, such as .env, or in the environment of the server"
	for traceback, want := range map[string]string{
		"Traceback (most recent call last):\n  File \"/app/agent.py\", line 3, in node\n    import yaml\nModuleNotFoundError: No module named 'yaml'\nDuring task with name 'node' and id '1'": py + " -m pip install PyYAML",
		"ModuleNotFoundError: No module named 'langchain_openai'":                                                                                       py + " -m pip install langchain-openai",
		"ModuleNotFoundError: No module named 'google.genai.types'":                                                                                     py + " -m pip install google-genai",
		"ModuleNotFoundError: No module named 'langgraph.checkpoint.sqlite'":                                                                            py + " -m pip install langgraph-checkpoint-sqlite",
		"ModuleNotFoundError: No module named 'a.b.c'":                                                                                                  unknown("a.b.c"),
		"ImportError: Could not import wikipedia python package. Please install it with `pip install wikipedia`.":                                       py + " -m pip install wikipedia",
		"ImportError: Please run `pip install -U \"pkg[extra]\"`":                                                                                       py + ` -m pip install -U pkg[extra]`,
		"ImportError: cannot import name 'create_agent' from 'langchain.agents' (/app/.venv/lib/python3.12/site-packages/langchain/agents/__init__.py)": py + " -m pip install --upgrade langchain",
		"ImportError: cannot import name 'x' from partially initialized module 'agent' (most likely due to a circular import) (/app/agent.py)":          "agent and a module that it imports import each other: move what both need to a third one, or import inside of the function that uses it",
		"  File \"/x/langgraph/graph/state.py\", line 1, in f\n    raise InvalidUpdateError(msg)\nlanggraph.errors.InvalidUpdateError: Expected dict, got 5\nFor troubleshooting, visit: https://x\nDuring task with name 'n' and id '1'":            "return a dict with keys of the state from the node, or None for no change",
		"  File \"/x/langgraph/pregel/main.py\", line 1, in f\n    raise GraphRecursionError(msg)\nlanggraph.errors.GraphRecursionError: Recursion limit of 25 reached":                                                                              "end the loop of the graph, or raise recursion_limit in the configuration of the run or assistant",
		"langgraph.errors.InvalidUpdateError: Expected dict, got 5\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  File \"/app/agent.py\", line 2, in f\n    x()\nValueError: mine": "",
		"ImportError: cannot import name 'x' from 'tools' (/app/tools.py)": "",
		"ModuleNotFoundError: No module named 'first'\n\nDuring handling of the above exception, another exception occurred:\n\nModuleNotFoundError: No module named 'second'":                                                                                        unknown("second"),
		"ModuleNotFoundError: No module named 'orjson'\n\nThe above exception was the direct cause of the following exception:\n\nRuntimeError: no codec":                                                                                                             py + " -m pip install orjson",
		"Traceback (most recent call last):\n  File \"/app/agent.py\", line 2, in <module>\n    KEY = os.environ[\"DB_URL\"]\n          ~~~~~~~~~~^^^^^^\n  File \"<frozen os>\", line 679, in __getitem__\nKeyError: 'DB_URL'":                                       "set DB_URL" + unset,
		"Traceback (most recent call last):\n  File \"/app/agent.py\", line 2, in <module>\n    KEY = os.environ[\"A\"]\n  File \"/usr/lib/python3.10/os.py\", line 679, in __getitem__\n    raise KeyError(key) from None\nKeyError: 'A'\nDuring task with name 'n'": "set A" + unset,
		"  File \"/x/_client.py\", line 1, in __init__\n    raise OpenAIError(\nopenai.OpenAIError: The api_key client option must be set either by passing api_key to the client or by setting the OPENAI_API_KEY environment variable":                              "set OPENAI_API_KEY" + unset,
		"  File \"/x/utils.py\", line 1, in f\n    raise ValueError(\npydantic.ValidationError: 1 validation error for ChatX\n  Value error, Did not find x_api_key, please add an environment variable `X_API_KEY` which contains it":                                "set X_API_KEY" + unset,
		"  File \"/app/agent.py\", line 2, in f\n    raise ValueError(\"environment variable A_KEY\")\nValueError: no":                                                                                                                                                "",
		"  File \"/app/agent.py\", line 2, in f\n    {}['A_KEY']\nKeyError: 'A_KEY'":                                                                                                                                                                                  "",
		"ImportError: attempted relative import with no known parent package":                                                                                                                                                                                         `name the module in place of its file: "package.module:graph" in graphs of langgraph.json, with the folder of the package in dependencies`,
		"  File \"/app/agent.py\", line 1, in <module>\n    import openai.types\nModuleNotFoundError: No module named 'openai.types'; 'openai' is not a package":                                                                                                      "correct the import: openai is a module without parts",
		"  File \"/x/graphs.py\", line 1, in load\n    f()\nPermissionError: [Errno 13] Permission denied: '/app/agent.py'":                                                                                                                                           "let the user of the server use /app/agent.py, or start the server as its owner",
		"  File \"/app/agent.py\", line 1, in <module>\n    open('prompt.md')\nFileNotFoundError: [Errno 2] No such file or directory: 'prompt.md'":                                                                                                                   "create prompt.md, or correct the path: it begins in the folder of langgraph.json",
		"  File \"/app/agent.py\", line 1, in <module>\n    open('/a/b')\nFileNotFoundError: [Errno 2] No such file or directory: '/a/b'\nDuring task with name 'n'":                                                                                                  "create /a/b, or correct the path",
		"  File \"<understudy>/understudy_worker/graphs.py\", line 52, in _find\nValueError: Could not find graph 'g' in './a.py'. Graphs there: []":                                                                                                                  "fix the name after the colon in graphs of langgraph.json, or define it in the file",
		"  File \"<understudy>/understudy_worker/loading.py\", line 38, in f\nFileNotFoundError: No such file: /app/a.py":                                                                                                                                             "fix the path before the colon in graphs of langgraph.json, or create the file",
		"  File \"<understudy>/understudy_worker/graphs.py\", line 70, in f\nTypeError: int is neither a graph nor a function that makes one: name":                                                                                                                   "name the graph after the colon in graphs of langgraph.json: the result of compile(), or a function that returns it",
		"  File \"<understudy>/understudy_worker/wire.py\", line 93, in send\nunderstudy_worker.wire.FrameTooLarge: a value of 9 bytes is larger than the 8 that can be saved":                                                                                        "keep data of this size out of the state and of what is streamed: write it to a file or an object store, and pass on its name",
		"  File \"<understudy>/understudy_worker/graphs.py\", line 96, in f\nTypeError: Graph factory 'g' made a int, not a graph":                                                                                                                                    "return a graph from the function that langgraph.json names",
		"openai.OpenAIError: Missing credentials. Please pass an `api_key`, or set the `OPENAI_API_KEY` or `OPENAI_ADMIN_KEY` environment variable.":                                                                                                                  "set OPENAI_API_KEY" + unset,
		"x.Error: Set X_ADMIN_KEY, X_TOKEN or the environment variable X_API_KEY":                                                                                                                                                                                     "set X_API_KEY" + unset,
		"x.Error: Set the environment variable X_TOKEN or X_SECRET":                                                                                                                                                                                                   "set X_TOKEN" + unset,
		"  File \"/app/agent.py\", line 2, in f\n    asyncio.run(g())\nRuntimeError: asyncio.run() cannot be called from a running event loop\nDuring":                                                                                                                "await the coroutine in place of running it: make the function `async def`, a node as well as a factory",
		"  File \"/app/agent.py\", line 2, in f\n    sys.exit(3)\nSystemExit: 3\n":                                                                                                                                                                                    "raise an exception that says what is wrong in place of calling sys.exit: the server serves other graphs, too",
		"  File \"/usr/lib/bdb.py\", line 2, in f\n    raise BdbQuit\nbdb.BdbQuit\nDuring task with name 'n'":                                                                                                                                                         "remove breakpoint(): a worker has no terminal; attach a debugger that listens, such as debugpy",
		"  File \"/app/agent.py\", line 2, in f\n    input()\nEOFError: EOF when reading a line":                                                                                                                                                                      "ask with interrupt() of langgraph.types in place of input(): a worker has no terminal",
		"  File \"/x/_base_client.py\", line 2, in f\n    raise e\nlangchain_openai.chat_models.base.OpenAIAuthenticationError: Error code: 401 - {}":                                                                                                                 "check the key of the model, such as OPENAI_API_KEY, in the file that env of langgraph.json names, or in the environment of the server, and that its account may use the model",
		"  File \"/x/_base_client.py\", line 2, in f\n    raise e\nanthropic.NotFoundError: Error code: 404 - {}":                                                                                                                                                     "check the name of the model, and the address of the provider (base_url) if one is set",
		"  File \"/x/_base_client.py\", line 2, in f\n    raise e\nopenai.APIConnectionError: Connection error.":                                                                                                                                                      "see that this machine reaches the provider of the model: its address (base_url, OPENAI_BASE_URL), the name servers, and the proxy (HTTPS_PROXY)",
		"  File \"/app/agent.py\", line 2, in f\n    raise NotFoundError('404')\nmine.NotFoundError: no page":                                                                                                                                                         "",
		"ValueError: No module named 'x'":   "",
		"KeyError: 'ModuleNotFoundError: '": "",
		"":                                  "",
	} {
		require.Equal(t, want, python.FixFailure(py, traceback), traceback)
	}
}

// A file or folder of the project that has the name of a package hides it: installing that would not help.
func TestFixOfWhatHidesAPackage(t *testing.T) {
	t.Parallel()
	dir, other, venv := t.TempDir(), t.TempDir(), t.TempDir()
	py := filepath.Join(venv, "bin", "python")
	for _, file := range []string{
		filepath.Join(dir, "langgraph", "__init__.py"), filepath.Join(dir, "openai", "__init__.py"), filepath.Join(other, "redis.py"), filepath.Join(dir, "mine", "__init__.py"),
		filepath.Join(dir, "parts", "one.py"), // a folder without __init__.py hides nothing
		filepath.Join(venv, "lib", "python3.12", "site-packages", "openai", "__init__.py"), filepath.Join(venv, "lib", "python3.12", "site-packages", "redis", "__init__.py"),
		filepath.Join(venv, "lib", "python3.12", "site-packages", "six.py"), filepath.Join(dir, "mine", "one.py"),
		filepath.Join(venv, "lib", "python3.12", "site-packages", "parts", "__init__.py"),
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, nil, 0o600))
	}
	const frame = "Traceback (most recent call last):\n  File \"/app/agent.py\", line 3, in <module>\n    import x\n"
	openai := "rename the folder " + filepath.Join(dir, "openai") + ": it hides the package openai"
	redis := "rename the file " + filepath.Join(other, "redis.py") + ": it hides the package redis"
	for text, want := range map[string]string{
		"ModuleNotFoundError: No module named 'openai.types'":                                                                openai,
		"ImportError: cannot import name 'OpenAI' from 'openai' (" + filepath.Join(dir, "openai", "__init__.py") + ")":       openai,
		"AttributeError: module 'openai' has no attribute 'OpenAI'":                                                          openai,
		"ImportError: cannot import name 'Redis' from 'redis' (" + filepath.Join(other, "redis.py") + ")":                    redis,
		"AttributeError: module 'redis' has no attribute 'Redis'":                                                            redis,
		"ModuleNotFoundError: No module named 'mine.tools'":                                                                  "create mine.tools, or correct the import; if it is in an installed package, rename the folder " + filepath.Join(dir, "mine") + ", which hides it",
		"ModuleNotFoundError: No module named 'redis.asyncio'; 'redis' is not a package":                                     redis,
		"ModuleNotFoundError: No module named 'six.foo'; 'six' is not a package":                                             "correct the import: six is a module without parts",
		"ModuleNotFoundError: No module named 'mine.one.two'; 'mine.one' is not a package":                                   "correct the import: mine.one is a module without parts",
		"AttributeError: module 'mine' has no attribute 'Tool'":                                                              "",
		"ImportError: cannot import name 'Tool' from 'mine' (" + filepath.Join(dir, "mine", "__init__.py") + ")":             "",
		"ModuleNotFoundError: No module named 'parts.two'":                                                                   "create parts.two in " + filepath.Join(dir, "parts") + ", or correct the import",
		"ModuleNotFoundError: No module named 'openai'\n\nDuring handling of it\n\nModuleNotFoundError: No module named 'y'": "install the package that has the module y (its name on PyPI may differ): " + py + " -m pip install PACKAGE; if the module is yours, add its folder to dependencies in langgraph.json",
	} {
		require.Equal(t, want, python.FixFailure(py, frame+text, dir, other), text)
	}
	require.Equal(t, "rename the folder "+filepath.Join(dir, "langgraph")+": it hides the package langgraph", python.Fix(py, "ModuleNotFoundError: No module named 'langgraph.version'", dir, other))
	require.Equal(t, "next to langgraph.json: "+py+" -m venv .venv && .venv/bin/python -m pip install langgraph (where --python names another, name .venv/bin/python)", python.Fix(py, "ModuleNotFoundError: No module named 'langgraph.version'", other))
}

// What is suggested for a module that is missing is the project's own when it has one of that name, then what the project lists, and a name on PyPI only where it is certain.
func TestFixOfMissingModules(t *testing.T) {
	t.Parallel()
	type files map[string]string
	const venv, pip = "/app/.venv/bin/python", "/app/.venv/bin/python -m pip install "
	unknown := func(module string) string {
		return "install the package that has the module " + module + " (its name on PyPI may differ): " + pip + "PACKAGE; if the module is yours, add its folder to dependencies in langgraph.json"
	}
	for name, c := range map[string]struct {
		files     files
		missing   string // what Python names
		statement string // what imports it
		want      string // DIR stands for the folder of the project
	}{
		"another name":        {nil, "faiss", "import faiss", pip + "faiss-cpu"},
		"first part missing":  {nil, "google", "import google.generativeai as genai", pip + "google-generativeai"},
		"from a namespace":    {nil, "google", "from google import genai", pip + "google-genai"},
		"unknown part":        {nil, "google", "from google.nowhere import x", unknown("google.nowhere.x")},
		"tavily":              {nil, "tavily", "from tavily import TavilyClient", pip + "tavily-python"},
		"attrs":               {nil, "attr", "import attr", pip + "attrs"},
		"the same name":       {nil, "openai", "from openai import OpenAI", pip + "openai"},
		"not certain":         {nil, "tools", "from tools import x", unknown("tools.x")},
		"next to the graph":   {files{"agent/tools.py": ""}, "tools", "from tools import x", `add "./agent", the folder of your tools.py, to dependencies in langgraph.json`},
		"in src":              {files{"src/mine/a.py": ""}, "mine", "import mine.a", `add "./src", the folder of your mine, to dependencies in langgraph.json`},
		"in the parent":       {files{"../common/a.py": ""}, "common", "from common.a import x", `add "..", the folder of your common, to dependencies in langgraph.json`},
		"deeper":              {files{"libs/x/helpers.py": ""}, "helpers", "import helpers", `add "./libs/x", the folder of your helpers.py, to dependencies in langgraph.json`},
		"two of them":         {files{"one/helpers.py": "", "two/helpers.py": ""}, "helpers", "import helpers", unknown("helpers")},
		"of an environment":   {files{"env/pyvenv.cfg": "", "env/lib/helpers.py": "", "node_modules/helpers.py": ""}, "helpers", "import helpers", unknown("helpers")},
		"not code":            {files{"tools/README.md": ""}, "tools", "import tools", unknown("tools")},
		"a package's name":    {files{"agent/magic.py": ""}, "magic", "import magic", pip + `python-magic; if you mean your DIR/agent/magic.py, add "./agent", the folder of your magic.py, to dependencies in langgraph.json`},
		"listed":              {files{"requirements.txt": "langgraph\nPython_Dotenv>=1\n"}, "dotenv", "import dotenv", pip + "-r DIR/requirements.txt"},
		"not listed":          {files{"requirements.txt": "langgraph\nfaiss-cpu-other\n"}, "faiss", "import faiss", "add faiss-cpu to DIR/requirements.txt, then " + pip + "-r DIR/requirements.txt"},
		"perhaps listed":      {files{"requirements.txt": "x\n"}, "tools", "import tools", pip + "-r DIR/requirements.txt; if tools is missing after that, add the package that has this module to DIR/requirements.txt (its name on PyPI may differ), and repeat it"},
		"a project":           {files{"pyproject.toml": "[project]\ndependencies = [\"tavily-python\"]\n"}, "tavily", "import tavily", pip + "-e DIR"},
		"settings of tools":   {files{"pyproject.toml": "[tool.ruff]\n"}, "tavily", "import tavily", pip + "tavily-python"},
		"the one that has it": {files{"requirements.txt": "ruff\n", "pyproject.toml": "[project]\ndependencies = [\"tavily-python\"]\n"}, "tavily", "import tavily", pip + "-e DIR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "project")
			require.NoError(t, os.MkdirAll(dir, 0o700))
			for file, text := range c.files {
				file = filepath.Join(dir, file)
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
				require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			}
			traceback := "Traceback (most recent call last):\n  File \"" + filepath.Join(dir, "agent", "graph.py") + "\", line 3, in <module>\n    " + c.statement + "\nModuleNotFoundError: No module named '" + c.missing + "'\n"
			require.Equal(t, strings.ReplaceAll(c.want, "DIR", dir), python.FixFailure(venv, traceback, dir))
		})
	}
}

// Whatever is missing first, an interpreter without langgraph is no environment of graphs: nothing is installed into it.
func TestFixOfAGlobalInterpreter(t *testing.T) {
	t.Parallel()
	const py = "/none/bin/python3"
	want := python.Fix(py, "No module named 'langgraph'", t.TempDir())
	require.Contains(t, want, "-m venv .venv")
	for _, module := range []string{"langgraph", "langgraph_sdk"} {
		require.Equal(t, want, python.FixFailure(py, "ModuleNotFoundError: No module named '"+module+"'", t.TempDir()))
	}
}

// The command for a virtual environment without pip, as uv creates them, gets pip first.
func TestFixWithoutPip(t *testing.T) {
	t.Parallel()
	venv := t.TempDir()
	py := filepath.Join(venv, "bin", "python")
	require.NoError(t, os.WriteFile(filepath.Join(venv, "pyvenv.cfg"), nil, 0o600))
	require.Equal(t, py+" -m ensurepip && "+py+" -m pip install PyYAML", python.FixFailure(py, "ModuleNotFoundError: No module named 'yaml'"))
}

// A worker that finds a folder of the project in place of langgraph says so when it ends.
func TestWorkersBelowAFolderThatHidesLanggraph(t *testing.T) {
	t.Parallel()
	o, log := options(t), &logtest.Buffer{}
	o.Dir = t.TempDir()
	folder := filepath.Join(o.Dir, "langgraph")
	require.NoError(t, os.MkdirAll(folder, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "__init__.py"), nil, 0o600))
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	require.ErrorContains(t, run(t, o).Ready(t.Context()), "No module named")
	await(t, "the log", func() bool { return log.String() != "" })
	require.Contains(t, log.String(), "rename the folder "+folder+": it hides the package langgraph")
}

// A file of the project that has the name of what it imports is to be renamed; modules that import each other are not.
func TestFilesThatHideWhatTheyImport(t *testing.T) {
	t.Parallel()
	const py = "/app/.venv/bin/python"
	dir := t.TempDir()
	for _, name := range []string{"openai", "secrets", "agent"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".py"), nil, 0o600))
	}
	at := func(name string) string { return filepath.Join(dir, name+".py") }
	require.Equal(t, "rename the file "+at("openai")+": it hides the package openai", python.FixFailure(py,
		"  File \""+at("openai")+"\", line 1, in <module>\n    from openai import OpenAI\nImportError: cannot import name 'OpenAI' from partially initialized module 'openai' (most likely due to a circular import) ("+at("openai")+")", dir))
	require.Equal(t, "rename the file "+at("secrets")+": it hides the module secrets of Python", python.FixFailure(py,
		"  File \"/x/site-packages/starlette/a.py\", line 1, in <module>\n    secrets.token_hex(1)\nAttributeError: module 'secrets' has no attribute 'token_hex'", dir))
	require.Contains(t, python.FixFailure(py, "ImportError: cannot import name 'x' from partially initialized module 'agent' (most likely due to a circular import) ("+at("agent")+")", dir), "import each other")
}
