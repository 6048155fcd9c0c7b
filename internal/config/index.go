package config

import (
	"os"
	"strings"

	"understudy/graph/agent/provider"
)

// StoreIndex is store.index: how items of the store are embedded for semantic search.
type StoreIndex struct {
	// Dims is the number of dimensions of the vectors.
	Dims int
	// Embed is the embedding as the file names it.
	Embed string
	// Path is the file of a Python function or model, absolute, or Module is dotted, and Attr its name there. Without both, Embed is
	// provider:model.
	Path, Module, Attr string
	// Fields are the paths of the texts of an item; empty for the whole value.
	Fields []string
}

// IsPython reports whether Python computes the vectors.
func (i *StoreIndex) IsPython() bool { return i.Attr != "" }

// maxDims is more than any embedding model has.
const maxDims = 16_000

const embedExample = "openai:text-embedding-3-small"

func (f *file) storeIndex(v value, key string) {
	if v.empty() {
		return
	}
	i := &StoreIndex{}
	var embed, dims value
	f.section(v, key, map[string]func(value, string){
		"dims":   func(v value, key string) { dims, i.Dims = v, int(f.integer(v, key, 1, maxDims)) },
		"embed":  func(v value, key string) { embed, i.Embed = v, f.text(v, key, embedExample) },
		"fields": f.setTexts(&i.Fields, "text"),
	})
	if dims.data == nil {
		f.wrong(v, key, `has no dims; write the number of dimensions of the vectors, such as "dims": 1536`)
	}
	if embed.data == nil {
		f.wrong(v, key, `has no embed; write provider:model, such as %q, or the path of a Python function, such as "./embed.py:embed"`, embedExample)
		return
	}
	f.embedding(i, embed, join(key, "embed"))
	f.c.StoreIndex = i
}

// embedding reads "provider:model", "./file.py:name" or "module.sub:name".
func (f *file) embedding(i *StoreIndex, v value, key string) {
	colon := strings.LastIndexByte(i.Embed, ':')
	first, _, _ := strings.Cut(i.Embed, ":")
	switch {
	case i.Embed == "": // reported
	case colon <= 0 || colon == len(i.Embed)-1:
		f.wrong(v, key, `%q names no model; write provider:model, such as %q, or "./file.py:name"`, i.Embed, embedExample)
	case provider.Embeds(first):
	case strings.Contains(i.Embed[:colon], "/") || strings.HasSuffix(i.Embed[:colon], ".py"):
		i.Path, i.Attr = f.abs(i.Embed[:colon]), i.Embed[colon+1:]
		if _, err := os.Stat(i.Path); err != nil {
			f.wrong(v, key, "there is no file %s", i.Path)
		}
	case strings.Contains(i.Embed[:colon], "."):
		i.Module, i.Attr = i.Embed[:colon], i.Embed[colon+1:]
	default:
		f.wrong(v, key, `there is no provider %q; write one of %s, or the path of a Python function or of a model of LangChain, such as "./embed.py:model"`,
			first, list(provider.EmbeddingNames()))
	}
}
