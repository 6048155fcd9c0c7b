package python_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph/python"
)

func TestFixImport(t *testing.T) {
	t.Parallel()
	const py = "/app/.venv/bin/python"
	const yours = "; if the module is yours, add its folder to dependencies in langgraph.json"
	for traceback, want := range map[string]string{
		"Traceback (most recent call last):\n  File \"/app/agent.py\", line 3, in node\n    import yaml\nModuleNotFoundError: No module named 'yaml'\nDuring task with name 'node' and id '1'": py + " -m pip install PyYAML" + yours,
		"ModuleNotFoundError: No module named 'langchain_openai'":                                                                                                              py + " -m pip install langchain-openai" + yours,
		"ModuleNotFoundError: No module named 'google.genai.types'":                                                                                                            py + " -m pip install google-genai" + yours,
		"ModuleNotFoundError: No module named 'langgraph.checkpoint.sqlite'":                                                                                                   py + " -m pip install langgraph-checkpoint-sqlite" + yours,
		"ModuleNotFoundError: No module named 'a.b.c'":                                                                                                                         py + " -m pip install a" + yours,
		"ImportError: Could not import wikipedia python package. Please install it with `pip install wikipedia`.":                                                              py + " -m pip install wikipedia",
		"ImportError: Please run `pip install -U \"pkg[extra]\"`":                                                                                                              py + ` -m pip install -U pkg[extra]`,
		"ImportError: cannot import name 'create_agent' from 'langchain.agents' (/app/.venv/lib/python3.12/site-packages/langchain/agents/__init__.py)":                        py + " -m pip install --upgrade langchain",
		"ImportError: cannot import name 'x' from partially initialized module 'agent' (most likely due to a circular import) (/app/agent.py)":                                 "",
		"ImportError: cannot import name 'x' from 'tools' (/app/tools.py)":                                                                                                     "",
		"ModuleNotFoundError: No module named 'first'\n\nDuring handling of the above exception, another exception occurred:\n\nModuleNotFoundError: No module named 'second'": py + " -m pip install second" + yours,
		"ModuleNotFoundError: No module named 'orjson'\n\nThe above exception was the direct cause of the following exception:\n\nRuntimeError: no codec":                      py + " -m pip install orjson" + yours,
		"ValueError: No module named 'x'":   "",
		"KeyError: 'ModuleNotFoundError: '": "",
		"":                                  "",
	} {
		require.Equal(t, want, python.FixImport(py, traceback), traceback)
	}
}
