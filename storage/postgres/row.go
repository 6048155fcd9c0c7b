package postgres

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
	"understudy/storage/internal/seal"
)

// row is a row of a result. Its methods copy, because the driver reuses the memory.
type row struct {
	fields []pgconn.FieldDescription
	values [][]byte
	open   func(b []byte, open func([]byte) []byte) []byte // nil: open itself
}

// each calls fn for the rows of a result and closes it. errStop of fn ends it. open decrypts values by a function of package seal; nil: as it is.
func each(answer pgx.Rows, open func(b []byte, open func([]byte) []byte) []byte, fn func(*row) error) (err error) {
	defer answer.Close()
	defer seal.Recovered(&err)
	r := row{open: open}
	for answer.Next() {
		if fn == nil {
			continue
		}
		if r.fields == nil { // a failed result has none
			r.fields = answer.FieldDescriptions()
		}
		r.values = answer.RawValues()
		if err := fn(&r); err != nil {
			if errors.Is(err, errStop) {
				answer.Close()
				return answer.Err()
			}
			return err
		}
	}
	return answer.Err()
}

// errStop ends a query early without an error.
var errStop = relational.ErrStop

func (r *row) Null(col int) bool { return r.values[col] == nil }

func (r *row) Text(col int) string { return string(r.values[col]) }

// Bytes returns bytea, or json as text; nil for NULL.
func (r *row) Bytes(col int) []byte {
	v, f := r.values[col], &r.fields[col]
	switch {
	case v == nil:
		return nil
	case f.DataTypeOID == pgtype.ByteaOID && f.Format == pgx.TextFormatCode:
		out := make([]byte, hex.DecodedLen(max(0, len(v)-2)))
		_, _ = hex.Decode(out, v[min(2, len(v)):]) // \x… from Postgres is always valid
		return r.opened(out, seal.Open)
	case f.DataTypeOID == pgtype.JSONBOID && f.Format == pgx.BinaryFormatCode:
		v = v[1:] // the version byte of jsonb
	}
	out := append(make([]byte, 0, len(v)), v...)
	if f.DataTypeOID == pgtype.JSONBOID {
		return r.opened(out, seal.OpenJSON)
	}
	return r.opened(out, seal.Open)
}

func (r *row) opened(b []byte, open func([]byte) []byte) []byte {
	if r.open == nil {
		return open(b)
	}
	return r.open(b, open)
}

// Append copies binary bytea, or text, into buf.
func (r *row) Append(buf []byte, col int) []byte {
	if f := &r.fields[col]; f.DataTypeOID == pgtype.ByteaOID && f.Format == pgx.TextFormatCode {
		return append(buf, r.Bytes(col)...)
	}
	if seal.IsSealed(r.values[col]) {
		return append(buf, r.Bytes(col)...)
	}
	return append(buf, r.values[col]...)
}

// Int returns any integer type; 0 for NULL.
func (r *row) Int(col int) int64 {
	v := r.values[col]
	if r.fields[col].Format == pgx.TextFormatCode {
		n, _ := strconv.ParseInt(string(v), 10, 64) // text from Postgres is always valid
		return n
	}
	switch len(v) {
	case 2:
		return int64(int16(binary.BigEndian.Uint16(v)))
	case 4:
		return int64(int32(binary.BigEndian.Uint32(v)))
	case 8:
		return int64(binary.BigEndian.Uint64(v))
	}
	return 0
}

func (r *row) Bool(col int) bool {
	v := r.values[col]
	return len(v) == 1 && (v[0] == 1 || v[0] == 't')
}

// Time reads microseconds as UTC; the zero time for NULL.
func (r *row) Time(col int) time.Time {
	if r.Null(col) {
		return time.Time{}
	}
	return time.UnixMicro(r.Int(col)).UTC()
}

// bind converts arguments to types that the driver encodes without reflection: text, integers,
// bytes and lists of them. nil slices and zero times are NULL. Empty text stays empty text: use
// orNull where it means NULL.
func bind(args []any) []any { return bindWith(nil, args) }

// bindWith is bind with all bytes encrypted.
func bindWith(ring *seal.Ring, args []any) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		out[i] = bindOne(arg)
		if ring == nil {
			continue
		}
		switch v := out[i].(type) {
		case []byte:
			out[i] = ring.Seal(v)
		case [][]byte:
			list := make([][]byte, len(v))
			for n := range v {
				list[n] = ring.Seal(v[n])
			}
			out[i] = list
		}
	}
	return out
}

// bindOne converts one argument.
func bindOne(arg any) any {
	switch v := arg.(type) {
	case nil, bool, int64, []int64, []*int64, []*string, []bool, [][]byte, []float32:
		return v
	case string:
		return clean(v)
	case []byte:
		if v == nil {
			return nil
		}
		return v
	case json.RawMessage:
		if v == nil {
			return nil
		}
		return []byte(v)
	case int:
		return int64(v)
	case time.Time:
		if v.IsZero() {
			return nil
		}
		return v.UnixMicro()
	case *time.Time:
		if v == nil {
			return nil
		}
		return v.UnixMicro()
	}
	switch v := reflect.ValueOf(arg); v.Kind() {
	case reflect.String:
		return clean(v.String())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return v.Int()
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return int64(v.Uint())
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return bindOne(v.Elem().Interface())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.String {
			texts := make([]string, v.Len())
			for i := range texts {
				texts[i] = clean(v.Index(i).String())
			}
			return texts
		}
		if v.Type().Elem().Kind() == reflect.Int64 {
			numbers := make([]int64, v.Len())
			for i := range numbers {
				numbers[i] = v.Index(i).Int()
			}
			return numbers
		}
	}
	panic(fmt.Sprintf("postgres: cannot bind %T", arg))
}

// clean prepares text for a text column.
func clean(s string) string { return rows.Text(s) }

// orNull returns NULL for empty text.
func orNull[T ~string](v T) any {
	if v == "" {
		return nil
	}
	return string(v)
}

// micros is for columns that are never NULL, where the zero time is a value.
func micros(t time.Time) int64 { return t.UnixMicro() }
