package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"reflect"
	"sort"
	"strconv"
	"strings"
)

const tableHead = `# The fields of protobuf messages and their names in JSON. Written by tools/protobuf/generate.sh, not by hand.
#
#   = APIVERSION KIND MESSAGE           a kind that can be the body of a request or an answer
#   MESSAGE [@UNION] NUMBER:NAME:TYPE…  a message; an @UNION is written as one of its fields
#
# NAME is - for a message whose fields stand in JSON among those of the outer one.
# TYPE: * pointer, [ repeated, { map with text keys; then s text, y bytes, b bool, i int32, l int64, d double,
# an @name for a type with a form of its own, or a message; then ? omitempty, ! omitzero.
`

// Types that have their own form in JSON; the decoder handles each by name.
var special = map[string]string{
	"meta.v1.Time":                 "@time",
	"meta.v1.MicroTime":            "@microtime",
	"meta.v1.FieldsV1":             "@raw",
	"pkg.runtime.RawExtension":     "@raw",
	"apiextensions.v1.JSON":        "@raw",
	"api.resource.Quantity":        "@quantity",
	"util.intstr.IntOrString":      "@intorstring",
	"authentication.v1.ExtraValue": "@texts",
	"authorization.v1.ExtraValue":  "@texts",
	"certificates.v1.ExtraValue":   "@texts",
}

// Messages that are written to JSON as one of their fields.
var unions = map[string]string{
	"apiextensions.v1.JSONSchemaPropsOrArray":       "@array",
	"apiextensions.v1.JSONSchemaPropsOrBool":        "@bool",
	"apiextensions.v1.JSONSchemaPropsOrStringArray": "@texts",
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	wireMarshaler = reflect.TypeFor[interface{ Marshal() ([]byte, error) }]()
)

type table struct {
	lines   map[string]string
	pending []reflect.Type
	names   map[string]reflect.Type
}

func writeTable(out io.Writer, roots []root) {
	built := table{lines: map[string]string{}, names: map[string]reflect.Type{}}
	fmt.Fprint(out, tableHead)
	for _, root := range roots {
		fmt.Fprintf(out, "= %s %s %s\n", root.GroupVersion(), root.Kind, built.message(root.goType))
	}
	for len(built.pending) > 0 {
		next := built.pending[0]
		built.pending = built.pending[1:]
		built.add(next)
	}
	var names []string
	for name := range built.lines {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintln(out, built.lines[name])
	}
}

// The name of a type: the last two parts of its package, and its own name.
func nameOf(of reflect.Type) string {
	parts := strings.Split(of.PkgPath(), "/")
	return strings.Join(append(parts[max(0, len(parts)-2):], of.Name()), ".")
}

// The name of a message, which is added to the table.
func (t *table) message(of reflect.Type) string {
	name := nameOf(of)
	if known, ok := t.names[name]; ok {
		if known != of {
			log.Fatalf("%v and %v would both be %s", known, of, name)
		}
		return name
	}
	t.names[name] = of
	t.pending = append(t.pending, of)
	return name
}

func (t *table) add(of reflect.Type) {
	name := nameOf(of)
	line := name
	if union, ok := unions[name]; ok {
		line += " " + union
	} else if of.Implements(jsonMarshaler) || reflect.PointerTo(of).Implements(jsonMarshaler) {
		log.Fatalf("%v has its own form in JSON", of)
	}
	var fields []string
	numbers := map[string]int{}
	for at := range of.NumField() {
		field := of.Field(at)
		tag, ok := field.Tag.Lookup("protobuf")
		if !ok {
			if field.Name != "TypeMeta" {
				log.Fatalf("%v.%s has no number", of, field.Name)
			}
			continue
		}
		number := strings.Split(tag, ",")[1]
		value, err := strconv.Atoi(number)
		if err != nil {
			log.Fatalf("%v.%s: %v", of, field.Name, err)
		}
		text := number + ":" + t.field(of, field)
		numbers[text] = value
		fields = append(fields, text)
	}
	sort.Slice(fields, func(a, b int) bool { return numbers[fields[a]] < numbers[fields[b]] })
	t.lines[name] = strings.Join(append([]string{line}, fields...), " ")
}

func (t *table) field(of reflect.Type, field reflect.StructField) string {
	options := strings.Split(field.Tag.Get("json"), ",")
	name, options := options[0], options[1:]
	end := ""
	for _, option := range options {
		switch option {
		case "inline":
			if field.Type.Kind() != reflect.Struct || name != "" {
				log.Fatalf("%v.%s cannot be inline", of, field.Name)
			}
			name = "-"
		case "omitempty":
			end += "?"
		case "omitzero":
			end += "!"
		default:
			log.Fatalf("%v.%s: %s", of, field.Name, option)
		}
	}
	if name == "" && field.Anonymous {
		name = "-"
	}
	if name == "" {
		name = field.Name
	}
	return name + ":" + t.typeOf(field.Type) + end
}

func (t *table) typeOf(of reflect.Type) string {
	if short, ok := special[nameOf(of)]; ok {
		return short
	}
	switch of.Kind() {
	case reflect.Pointer:
		return "*" + t.element(of)
	case reflect.Map:
		if of.Key().Kind() != reflect.String {
			log.Fatalf("%v has keys that are not texts", of)
		}
		return "{" + t.element(of)
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return "y"
		}
		return "[" + t.element(of)
	case reflect.Struct:
		return t.message(of)
	case reflect.String:
		return "s"
	case reflect.Bool:
		return "b"
	case reflect.Int32:
		return "i"
	case reflect.Int64:
		return "l"
	case reflect.Float64:
		return "d"
	}
	log.Fatalf("no type for %v", of)
	return ""
}

// The element type of a pointer, a list or a map.
func (t *table) element(of reflect.Type) string {
	element := t.typeOf(of.Elem())
	if strings.ContainsAny(element[:1], "*[{") || of.Name() != "" && of.Implements(wireMarshaler) {
		log.Fatalf("no type for %v", of)
	}
	return element
}
