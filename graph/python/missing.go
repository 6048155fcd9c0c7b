package python

import (
	"regexp"
	"strings"

	"understudy/graph"
)

var (
	notThere  = regexp.MustCompile(`ModuleNotFoundError: No module named '([\w.]+)'`)
	noName    = regexp.MustCompile(`ImportError: cannot import name '\w+' from '([\w.]+)' \(.*(?:site|dist)-packages`)
	tellsHow  = regexp.MustCompile("pip install ((?:-U |--upgrade )?[`'\"]?[\\w.-]+(?:\\[[\\w,.-]+\\])?)")
	lastError = regexp.MustCompile(`(?m)^(?:[\w.]+\.)?(ModuleNotFoundError|ImportError): .*`)
)

// distributions are packages whose modules have another name.
var distributions = map[string]string{
	"PIL": "pillow", "bs4": "beautifulsoup4", "cv2": "opencv-python", "dateutil": "python-dateutil", "docx": "python-docx", "dotenv": "python-dotenv", "fitz": "pymupdf",
	"git": "GitPython", "google.generativeai": "google-generativeai", "google.genai": "google-genai", "jose": "python-jose", "jwt": "PyJWT", "langgraph.checkpoint.postgres": "langgraph-checkpoint-postgres",
	"langgraph.checkpoint.redis": "langgraph-checkpoint-redis", "langgraph.checkpoint.sqlite": "langgraph-checkpoint-sqlite", "magic": "python-magic", "pptx": "python-pptx", "serial": "pyserial",
	"skimage": "scikit-image", "sklearn": "scikit-learn", "yaml": "PyYAML", "zmq": "pyzmq",
}

// FixImport returns the command that installs what an exception says is missing, in the words of a traceback; "" when it is no failed import.
func FixImport(python, traceback string) string {
	all := lastError.FindAllString(traceback, -1)
	if len(all) == 0 {
		return ""
	}
	text := all[len(all)-1]
	if m := tellsHow.FindStringSubmatch(text); m != nil {
		return python + " -m pip install " + strings.NewReplacer("`", "", "'", "", `"`, "").Replace(m[1])
	}
	if m := notThere.FindStringSubmatch(text); m != nil {
		return python + " -m pip install " + distribution(m[1]) + "; if the module is yours, add its folder to dependencies in langgraph.json"
	}
	if m := noName.FindStringSubmatch(text); m != nil {
		return python + " -m pip install --upgrade " + distribution(m[1])
	}
	return ""
}

// distribution returns the package of a module.
func distribution(module string) string {
	for name := module; name != ""; {
		if d := distributions[name]; d != "" {
			return d
		}
		at := strings.LastIndexByte(name, '.')
		if at < 0 {
			return strings.ReplaceAll(name, "_", "-")
		}
		name = name[:at]
	}
	return module
}

// failureOf returns the failure that a worker reports, with advice when an import failed.
func (w *worker) failureOf(kind, text, detail string) *graph.Failure {
	return &graph.Failure{Type: kind, Message: text, Detail: detail, Fix: FixImport(w.gen.opts.Python, detail)}
}
