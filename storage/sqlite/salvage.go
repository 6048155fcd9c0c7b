package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"
)

// salvage copies what can be read of a damaged database into a new one: the rows before, between and behind damaged pages. It returns the names of
// tables of which something was lost. The index of words is left empty: a server fills it.
//
// SQLite's own .recover needs an option that few builds of its shell have, and a shell at all, which containers lack.
func salvage(ctx context.Context, from, to string, report func(done, total int64)) (lost []string, err error) {
	if err := accessible(from); err != nil {
		return nil, err
	}
	info, err := os.Stat(from)
	if err != nil {
		return nil, err
	}
	read := int64(0)
	src, err := sqlite.OpenConn(from, sqlite.OpenReadOnly)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	src.SetInterrupt(ctx.Done())
	dst, err := sqlite.OpenConn(to, sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	dst.SetInterrupt(ctx.Done())
	// Of a broken copy nothing is kept, and checkDatabase writes the whole one to disk.
	for _, pragma := range []string{"PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF", "PRAGMA foreign_keys = OFF", "BEGIN"} {
		if err := exec(dst, pragma); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(exec(src, "PRAGMA cell_size_check = ON"), exec(src, "BEGIN")); err != nil {
		return nil, err
	}
	tables, rest, err := schemaOf(src)
	if err != nil {
		return nil, fmt.Errorf("its list of tables cannot be read, and so nothing else: %w", err)
	}
	for _, t := range tables {
		if err := exec(dst, t.create); err != nil {
			return nil, err
		}
		if t.virtual {
			continue
		}
		whole, err := (&salvaging{src: src, dst: dst, table: t.name, copied: func(bytes int64) {
			read += bytes
			report(min(read, info.Size()), info.Size())
		}}).copy()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		if !whole {
			lost = append(lost, t.name)
		}
	}
	for _, create := range rest { // indexes and triggers, faster and safer when the rows are there
		err := exec(dst, create)
		if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultConstraint {
			return nil, fmt.Errorf("rows that can be read contradict each other: restore a backup from before the damage: %w", err)
		}
		if err != nil {
			return nil, err
		}
	}
	if slices.Contains(lost, "schema_migrations") { // no server could tell what it has before it
		return nil, errors.New("what version it has cannot be read (table schema_migrations): restore a backup from before the damage")
	}
	return lost, exec(dst, "COMMIT")
}

type salvagedTable struct {
	name, create string
	virtual      bool
}

// schemaOf returns the tables of a database and the statements that make the rest.
func schemaOf(conn *sqlite.Conn) (tables []salvagedTable, rest []string, err error) {
	var virtual []string
	counters := false
	err = query(conn, "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid", func(s *sqlite.Stmt) error {
		t := salvagedTable{name: s.ColumnText(1), create: s.ColumnText(2)}
		switch t.virtual = strings.HasPrefix(t.create, "CREATE VIRTUAL"); {
		case s.ColumnText(0) != "table":
			rest = append(rest, t.create)
		case t.name == "sqlite_sequence":
			counters = true
		case !strings.HasPrefix(t.name, "sqlite_"): // statistics are made anew
			tables = append(tables, t)
		}
		if t.virtual {
			virtual = append(virtual, t.name+"_")
		}
		return nil
	})
	// A virtual table makes others for itself.
	tables = slices.DeleteFunc(tables, func(t salvagedTable) bool {
		return slices.ContainsFunc(virtual, func(prefix string) bool { return strings.HasPrefix(t.name, prefix) })
	})
	if counters { // SQLite makes it with the first table that counts, and counts again from the rows copied
		tables = append(tables, salvagedTable{name: "sqlite_sequence", create: "DELETE FROM sqlite_sequence"})
	}
	return tables, rest, err
}

// salvaging copies the rows of one table.
type salvaging struct {
	src, dst *sqlite.Conn
	table    string
	columns  string // quoted, the first is the key if it is a number
	number   string // the column that numbers the rows; "": the table has no such column
	key      string // the columns of the primary key of a table without numbers, each with %s for its direction
	insert   *sqlite.Stmt
	copied   func(bytes int64) // called for each row
	whole    bool
}

// copy reports whether all rows could be read.
func (s *salvaging) copy() (whole bool, err error) {
	if err := s.describe(); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.insert.Finalize()) }()
	s.whole = true
	if s.number == "" {
		if err := s.rows("ORDER BY " + strings.ReplaceAll(s.key, "%s", "ASC")); err != nil || s.whole {
			return s.whole, err
		}
		return false, s.rows("ORDER BY " + strings.ReplaceAll(s.key, "%s", "DESC")) // what is behind the damage
	}
	last := int64(math.MinInt64)
	for {
		reached, damaged, err := s.from(last)
		if err != nil || !damaged {
			return s.whole, err
		}
		next, found, err := s.behind(reached)
		if err != nil || !found {
			return false, err
		}
		// Between the damage and that row are others that are whole.
		if err := s.rows(fmt.Sprintf("WHERE %[1]s > %[2]d AND %[1]s <= %[3]d ORDER BY %[1]s DESC", s.number, reached, next)); err != nil {
			return false, err
		}
		last = next
	}
}

// describe reads the columns of the table, and prepares the statement that inserts.
func (s *salvaging) describe() error {
	var columns, keys []string
	alias := ""
	err := query(s.src, "SELECT name, type, pk FROM pragma_table_xinfo(?) WHERE hidden = 0 ORDER BY cid", func(st *sqlite.Stmt) error {
		name := `"` + st.ColumnText(0) + `"`
		columns = append(columns, name)
		if st.ColumnInt(2) > 0 {
			keys = append(keys, name)
			alias = name
			if !strings.EqualFold(st.ColumnText(1), "INTEGER") {
				alias = ""
			}
		}
		return nil
	}, s.table)
	if err != nil {
		return err
	}
	numbered := true
	if _, err := one(s.src, "SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?", func(st *sqlite.Stmt) error { numbered = st.ColumnInt(0) == 0; return nil }, s.table); err != nil {
		return err
	}
	switch {
	case numbered && len(keys) == 1 && alias != "":
		columns = slices.DeleteFunc(columns, func(c string) bool { return c == alias })
		s.number, columns = alias, append([]string{alias}, columns...)
	case numbered:
		s.number, columns = "rowid", append([]string{"rowid"}, columns...)
	default:
		s.key = strings.Join(keys, " %s, ") + " %s"
	}
	s.columns = strings.Join(columns, ", ")
	s.insert, _, err = s.dst.PrepareTransient(fmt.Sprintf("INSERT INTO %q (%s) VALUES (?%s)", s.table, s.columns, strings.Repeat(", ?", len(columns)-1)))
	return err
}

// from copies the rows behind a number, in order. It returns the number of the last one, and whether damage is behind it.
func (s *salvaging) from(after int64) (last int64, damaged bool, err error) {
	last = after
	err = s.read(fmt.Sprintf("WHERE %[1]s > %[2]d ORDER BY %[1]s", s.number, after), func(st *sqlite.Stmt) error {
		last = st.ColumnInt64(0)
		return s.put(st)
	})
	damaged = isDamage(err)
	if damaged {
		s.whole, err = false, nil
	}
	return last, damaged, err
}

// behind returns the number of a row that can be read, and of which the next ones can perhaps too, behind damage: it doubles the distance.
func (s *salvaging) behind(last int64) (next int64, found bool, err error) {
	for distance := int64(1); distance > 0 && last <= math.MaxInt64-distance; distance *= 2 {
		err := s.read(fmt.Sprintf("WHERE %[1]s > %[2]d ORDER BY %[1]s LIMIT 1", s.number, last+distance), func(st *sqlite.Stmt) error {
			next, found = st.ColumnInt64(0), true
			return s.put(st)
		})
		if found || !isDamage(err) {
			return next, found, err
		}
	}
	return 0, false, nil
}

// rows copies rows until the end or damage.
func (s *salvaging) rows(which string) error {
	err := s.read(which, s.put)
	if isDamage(err) {
		s.whole, err = false, nil
	}
	return err
}

func (s *salvaging) read(which string, row func(*sqlite.Stmt) error) error {
	return query(s.src, fmt.Sprintf("SELECT %s FROM %q NOT INDEXED %s", s.columns, s.table, which), row)
}

// put writes a row as it is. One that breaks a rule of the table is damaged too.
func (s *salvaging) put(st *sqlite.Stmt) error {
	size := int64(0)
	for i := range st.ColumnCount() {
		size += int64(st.ColumnLen(i)) + 1
		switch st.ColumnType(i) {
		case sqlite.TypeInteger:
			s.insert.BindInt64(i+1, st.ColumnInt64(i))
		case sqlite.TypeFloat:
			s.insert.BindFloat(i+1, st.ColumnFloat(i))
		case sqlite.TypeText:
			s.insert.BindText(i+1, st.ColumnText(i))
		case sqlite.TypeBlob:
			b := make([]byte, st.ColumnLen(i))
			st.ColumnBytes(i, b)
			s.insert.BindBytes(i+1, b)
		default:
			s.insert.BindNull(i + 1)
		}
	}
	s.copied(size)
	_, err := s.insert.Step()
	code := sqlite.ErrCode(err)
	err = errors.Join(err, s.insert.Reset(), s.insert.ClearBindings())
	if code.ToPrimary() == sqlite.ResultConstraint {
		// A row is met twice where both sides of damage are read.
		again := code == sqlite.ResultConstraintPrimaryKey || code == sqlite.ResultConstraintRowID
		s.whole, err = s.whole && again, nil
	}
	return err
}

// isDamage reports whether the error of a read says that pages are damaged, or that the disk cannot read them.
func isDamage(err error) bool {
	code := sqlite.ErrCode(err).ToPrimary()
	return err != nil && (code == sqlite.ResultCorrupt || code == sqlite.ResultNotADB || code == sqlite.ResultIOErr)
}
