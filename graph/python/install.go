package python

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"understudy/internal/shell"
)

// distributions are the packages on PyPI of modules, by the longest name that decides. Only those are here whose package is certain: what is suggested is
// installed, and a package of another name may be someone else's.
var distributions = map[string]string{
	"OpenSSL": "pyOpenSSL", "PIL": "pillow", "attr": "attrs", "azure.identity": "azure-identity", "azure.search.documents": "azure-search-documents", "bs4": "beautifulsoup4",
	"Crypto": "pycryptodome", "cv2": "opencv-python", "dateutil": "python-dateutil", "docx": "python-docx", "dotenv": "python-dotenv", "duckduckgo_search": "duckduckgo-search", "exa_py": "exa-py",
	"faiss": "faiss-cpu", "fitz": "PyMuPDF", "git": "GitPython", "github": "PyGithub", "google.cloud.aiplatform": "google-cloud-aiplatform", "google.cloud.bigquery": "google-cloud-bigquery",
	"google.cloud.storage": "google-cloud-storage", "google.generativeai": "google-generativeai", "google.genai": "google-genai", "googleapiclient": "google-api-python-client", "jose": "python-jose",
	"jwt": "PyJWT", "langgraph.checkpoint.postgres": "langgraph-checkpoint-postgres", "langgraph.checkpoint.redis": "langgraph-checkpoint-redis", "langgraph.checkpoint.sqlite": "langgraph-checkpoint-sqlite",
	"langgraph": "langgraph", "magic": "python-magic", "mysql.connector": "mysql-connector-python", "pptx": "python-pptx", "psycopg2": "psycopg2-binary", "qdrant_client": "qdrant-client",
	"sentence_transformers": "sentence-transformers", "serial": "pyserial", "serpapi": "google-search-results", "skimage": "scikit-image", "sklearn": "scikit-learn", "slack_sdk": "slack-sdk", "tavily": "tavily-python",
	"telegram": "python-telegram-bot", "weaviate": "weaviate-client", "websocket": "websocket-client", "win32api": "pywin32", "yaml": "PyYAML", "zmq": "pyzmq",
}

// sameNames are modules whose package has their name.
var sameNames = strings.Fields(`aiohttp anthropic anyio asyncpg boto3 botocore celery chromadb click cohere crewai deepagents django elasticsearch fastapi flask groq httpx jinja2 langchain langsmith litellm lxml matplotlib
	langchain_anthropic langchain_aws langchain_azure_ai langchain_chroma langchain_classic langchain_cohere langchain_community langchain_core langchain_deepseek langchain_elasticsearch langchain_experimental
	langchain_fireworks langchain_google_genai langchain_google_vertexai langchain_groq langchain_huggingface langchain_ibm langchain_mcp_adapters langchain_milvus langchain_mistralai langchain_mongodb
	langchain_neo4j langchain_nvidia_ai_endpoints langchain_ollama langchain_openai langchain_perplexity langchain_pinecone langchain_postgres langchain_qdrant langchain_redis langchain_tavily
	langchain_text_splitters langchain_together langchain_unstructured langchain_voyageai langchain_weaviate langchain_xai langgraph_sdk langgraph_supervisor langgraph_swarm
	mcp mistralai networkx nltk numpy ollama openai openpyxl orjson ormsgpack pandas pinecone playwright polars psycopg pydantic pymongo pypdf pytest redis requests rich scipy spacy sqlalchemy starlette stripe sympy tenacity
	tiktoken torch tqdm transformers twilio typer uvicorn websockets wikipedia`)

// distribution returns the package of a module; "" when it is not certain.
func distribution(module string) string {
	for name := module; name != ""; name = name[:max(0, strings.LastIndexByte(name, '.'))] {
		if d := distributions[name]; d != "" {
			return d
		}
	}
	root, _, _ := strings.Cut(module, ".")
	if slices.Contains(sameNames, root) {
		return strings.ReplaceAll(root, "_", "-")
	}
	return ""
}

var (
	importLine = regexp.MustCompile(`(?m)^ +(?:from ([\w.]+) import \(?(\w+)|import ([\w.]+))`)
	fileOf     = regexp.MustCompile(`(?m)^  File "([^"<\n]+)", line \d+`)
)

// imported returns the whole name of a missing module: Python names the first part that is missing, and the package depends on what follows it.
func imported(module, traceback string) string {
	all := importLine.FindAllStringSubmatch(traceback, -1)
	if len(all) == 0 {
		return module
	}
	m := all[len(all)-1]
	for _, name := range []string{m[1] + "." + m[2], m[3]} {
		if strings.HasPrefix(name, module+".") {
			return name
		}
	}
	return module
}

// fixMissing returns what to do about a module that Python does not find. dirs are the folder of langgraph.json, and others in which Python looks for modules.
func fixMissing(python, module, traceback string, dirs []string) string {
	whole := imported(module, traceback)
	known := distribution(whole)
	own, importable := fixOwn(module, traceback, dirs)
	if own != "" && known == "" {
		return importable
	}
	if (module == "langgraph" || strings.HasPrefix(module, "langgraph_")) && !isEnvironment(python) && !installed(python, "langgraph") {
		return Fix(python, "No module named 'langgraph'", dirs...) // as the workers say
	}
	fix := fixPackage(python, module, whole, known, dirs)
	if own != "" {
		return fix + "; if you mean your " + own + ", " + importable
	}
	return fix
}

// fixPackage returns how to install the package of a module; known is its name, "" when that is not certain.
func fixPackage(python, module, whole, known string, dirs []string) string {
	if root, part, _ := strings.Cut(module, "."); part != "" && known == distribution(root) && installed(python, filepath.Join(root, "__init__.py")) {
		if known == "" {
			return "correct the import: the package " + root + " of " + python + " has no " + part + "; another version may have it"
		}
		return "correct the import: the package " + root + " has no " + part + "; or, if a newer version has it, " + pip(python) + " install --upgrade " + known
	}
	list, what := listed(dirs, known)
	install := pip(python) + " install " + what
	switch {
	case list == "" && known == "":
		return "install the package that has the module " + whole + " (its name on PyPI may differ): " + install + "PACKAGE; if the module is yours, add its folder to dependencies in langgraph.json"
	case list == "":
		return install + known
	case known == "":
		return install + "; if " + whole + " is missing after that, add the package that has this module to " + list + " (its name on PyPI may differ), and repeat it"
	case !lists(list, known):
		return "add " + known + " to " + list + ", then " + install
	}
	return install
}

// fixOwn returns the file or folder of the project that has a missing module, and how Python finds it; "" when there is none.
func fixOwn(module, traceback string, dirs []string) (own, fix string) {
	if len(dirs) == 0 || dirs[0] == "" {
		return "", ""
	}
	root, part, _ := strings.Cut(module, ".")
	var near []string // where the module may be, the likeliest first
	if files := fileOf.FindAllStringSubmatch(traceback, -1); len(files) > 0 {
		if at := filepath.Dir(files[len(files)-1][1]); !isInstalled(at) && within(at, filepath.Dir(dirs[0])) {
			near = append(near, at)
		}
	}
	for _, dir := range dirs {
		near = append(near, dir, filepath.Join(dir, "src"))
	}
	near = append(near, filepath.Dir(dirs[0]))
	for _, dir := range near {
		switch found, isFolder := ownIn(root, dir); {
		case found == "":
		case !slices.Contains(dirs, dir):
			return found, "add " + asDependency(dirs[0], dir) + ", the folder of your " + filepath.Base(found) + ", to dependencies in langgraph.json"
		case part != "" && isFolder:
			return found, "create " + module + " in " + found + ", or correct the import"
		}
	}
	if found := search(root, dirs[0]); found != "" {
		return found, "add " + asDependency(dirs[0], filepath.Dir(found)) + ", the folder of your " + filepath.Base(found) + ", to dependencies in langgraph.json"
	}
	return "", ""
}

// ownIn returns the file or folder of a module in dir; "" when there is none. A folder without Python files is none.
func ownIn(root, dir string) (path string, isFolder bool) {
	if file := filepath.Join(dir, root+".py"); isFile(file) {
		return file, false
	}
	folder := filepath.Join(dir, root)
	entries, _ := os.ReadDir(folder)
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), ".py") }) {
		return folder, true
	}
	return "", false
}

// maxSearched bounds how many files and folders of a project are looked at for a module.
const maxSearched = 5000

// search returns the file or folder of a module anywhere below dir; "" when there is none, or more than one, so that it is not certain which is meant.
func search(root, dir string) (found string) {
	seen := 0
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if seen++; err != nil || seen > maxSearched {
			return filepath.SkipAll
		}
		if !e.IsDir() {
			return nil
		}
		if name := e.Name(); path != dir && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "site-packages" || name == "__pycache__" || isFile(filepath.Join(path, "pyvenv.cfg"))) {
			return filepath.SkipDir
		}
		if own, _ := ownIn(root, path); own != "" {
			if found != "" {
				found = ""
				return filepath.SkipAll
			}
			found = own
		}
		return nil
	})
	return found
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// within reports whether path is below dir, or dir.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && (rel == "." || filepath.IsLocal(rel))
}

// asDependency writes a folder as langgraph.json names it.
func asDependency(from, dir string) string {
	rel, err := filepath.Rel(from, dir)
	if err != nil {
		return `"` + filepath.ToSlash(dir) + `"`
	}
	if rel = filepath.ToSlash(rel); !strings.HasPrefix(rel, ".") {
		rel = "./" + rel
	}
	return `"` + rel + `"`
}

// listed returns the file in which the project lists its packages, and what pip is to install for it; "" when there is none. It prefers one that lists the package.
func listed(dirs []string, known string) (file, what string) {
	for _, dir := range dirs {
		for _, name := range []string{"requirements.txt", "pyproject.toml", "setup.py"} {
			path := filepath.Join(dir, name)
			if !isFile(path) || name == "pyproject.toml" && !isProject(path) || file != "" && !lists(path, known) {
				continue
			}
			if file != "" && lists(file, known) {
				continue
			}
			if file, what = path, "-e "+shell.Quote(dir); name == "requirements.txt" {
				what = "-r " + shell.Quote(path)
			}
		}
	}
	return file, what
}

// isProject reports whether a pyproject.toml describes a package, not only the settings of tools.
func isProject(path string) bool {
	text := read(path)
	return strings.Contains(text, "[project]") || strings.Contains(text, "[tool.poetry]") || strings.Contains(text, "[build-system]")
}

// maxRequirements bounds how much of a file that lists packages is read.
const maxRequirements = 1 << 20

func read(path string) string {
	if info, err := os.Stat(path); err != nil || info.Size() > maxRequirements {
		return ""
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(text)
}

var separators = regexp.MustCompile(`[-_.]+`)

// lists reports whether a file lists a package.
func lists(file, distribution string) bool {
	plain := func(text string) string { return strings.ToLower(separators.ReplaceAllString(text, "-")) }
	return distribution != "" && regexp.MustCompile(`(?m)(?:^|[\s"'])`+regexp.QuoteMeta(plain(distribution))+`(?:$|[^\w-])`).MatchString(plain(read(file)))
}

// isEnvironment reports whether an interpreter is of a virtual environment, or of one of Conda.
func isEnvironment(python string) bool {
	for _, sign := range []string{"pyvenv.cfg", "conda-meta"} {
		if _, err := os.Stat(filepath.Join(filepath.Dir(filepath.Dir(python)), sign)); err == nil {
			return true
		}
	}
	return false
}
