package relational_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// replaced are the methods of Store and Tx that an engine declares itself, and why the ones here do not do.
var replaced = map[string]map[string]string{
	"sqlite": {
		"Store.Assistant": "cached in memory: only this process changes assistants",
	},
	"postgres": {
		"Store.Remains":       "first drops copies that no server continues, which SQLite does at the start",
		"Tx.ActiveRuns":       "keeps the rows for the rest of the transaction",
		"Tx.Assistant":        "cached in memory, and verified by the commit",
		"Tx.ChannelText":      "the end of a run has read the newest checkpoint",
		"Tx.DropTranscripts":  "forgets rows that were read",
		"Tx.Fence":            "read ahead",
		"Tx.Find":             "read ahead",
		"Tx.HasActiveRuns":    "read ahead",
		"Tx.InsertThread":     "keeps the row for the rest of the transaction",
		"Tx.PutModelCalls":    "forgets what was read ahead",
		"Tx.PutTranscriptRow": "keeps the row for the rest of the transaction",
		"Tx.Run":              "read ahead, and kept for the rest of the transaction",
		"Tx.RunInput":         "kept with the run",
		"Tx.RunMessages":      "read ahead",
		"Tx.TakeModelCalls":   "read ahead",
		"Tx.Thread":           "read ahead, and kept for the rest of the transaction",
		"Tx.TranscriptRow":    "read ahead, and kept for the rest of the transaction",
	},
}

// A method of an engine that replaces one of this package by accident, by its name alone, would go unnoticed.
func TestReplaced(t *testing.T) {
	t.Parallel()
	common := map[string]bool{}
	for _, m := range methods(t, ".") {
		if part, name, _ := strings.Cut(m, "."); strings.HasSuffix(part, "Store") {
			common["Store."+name] = true
		} else if part == "Tx" {
			common[m] = true
		}
	}
	require.Greater(t, len(common), 150)
	for engine, reasons := range replaced {
		var found []string
		for _, m := range methods(t, filepath.Join("..", "..", engine)) {
			if common[m] {
				found = append(found, m)
			}
		}
		slices.Sort(found)
		require.Equal(t, slices.Sorted(maps.Keys(reasons)), found, "storage/%s replaces these methods of relational", engine)
	}
}

// methods returns the methods that the Go files of a folder declare, as Type.Method.
func methods(t *testing.T, folder string) (list []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil {
				continue
			}
			of := fn.Recv.List[0].Type
			if p, ok := of.(*ast.StarExpr); ok {
				of = p.X
			}
			if name, ok := of.(*ast.Ident); ok {
				list = append(list, name.Name+"."+fn.Name.Name)
			}
		}
	}
	return list
}
