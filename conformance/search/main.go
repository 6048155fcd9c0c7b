// Command search looks for secrets in files, and in the values of SQLite databases, also in those that are compressed.
//
//	search SECRETS FILE...
//
// SECRETS has one per line, as a JSON text. Each one that is found is printed with the place, and the program ends with 1.
package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/s2"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: search SECRETS FILE...")
		os.Exit(2)
	}
	found, err := search(os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "search:", err)
		os.Exit(2)
	}
	if found > 0 {
		os.Exit(1)
	}
}

func search(list string, files []string) (found int, err error) {
	forms, err := read(list)
	if err != nil {
		return 0, err
	}
	values := 0
	look := func(where string, text []byte) {
		values++
		for form, secret := range forms {
			if at := bytes.Index(text, []byte(form)); at >= 0 {
				found++
				fmt.Printf("%q is in %s: …%s…\n", secret, where, text[max(0, at-100):min(len(text), at+len(form)+50)])
			}
		}
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		look(file, text)
		if strings.HasSuffix(file, ".db") {
			if err := rows(file, look); err != nil {
				return 0, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	fmt.Printf("%d secrets, searched for in %d values\n", len(forms)/2, values)
	return found, nil
}

// read returns the secrets by the forms in which they are searched for.
func read(list string) (map[string]string, error) {
	f, err := os.Open(list)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	forms := map[string]string{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var secret string
		if err := json.Unmarshal(lines.Bytes(), &secret); err != nil {
			return nil, fmt.Errorf("%s: %w", list, err)
		}
		forms[secret], forms[base64.RawStdEncoding.EncodeToString([]byte(secret))] = secret, secret
	}
	return forms, lines.Err()
}

// rows looks at each value of a database, and at what is packed in one.
func rows(file string, look func(where string, text []byte)) (err error) {
	conn, err := sqlite.OpenConn(file, sqlite.OpenReadOnly)
	if err != nil {
		return err
	}
	defer func() {
		if e := conn.Close(); err == nil {
			err = e
		}
	}()
	var tables []string
	err = sqlitex.ExecuteTransient(conn, "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'", &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
		tables = append(tables, s.ColumnText(0))
		return nil
	}})
	for _, table := range tables {
		if err != nil {
			break
		}
		err = sqlitex.ExecuteTransient(conn, `SELECT * FROM "`+table+`"`, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
			for i := range s.ColumnCount() {
				value, err := io.ReadAll(s.ColumnReader(i))
				if err != nil {
					return err
				}
				look(table+"."+s.ColumnName(i), value)
				if plain, err := s2.Decode(nil, value); err == nil && len(plain) > 0 {
					look(table+"."+s.ColumnName(i)+", unpacked", plain)
				}
			}
			return nil
		}})
	}
	return err
}
