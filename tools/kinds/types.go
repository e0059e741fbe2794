package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"reflect"
	"slices"
	"sort"
	"strings"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/generated/openapi"
)

// The types with a form of their own in JSON.
var forms = map[string]string{
	"apiextensions.v1.JSON":                         "any",
	"apiextensions.v1.JSONSchemaPropsOrArray":       "schema-or-list",
	"apiextensions.v1.JSONSchemaPropsOrBool":        "schema-or-boolean",
	"apiextensions.v1.JSONSchemaPropsOrStringArray": "any",
	"intstr.IntOrString":                            "int-or-string",
	"meta.v1.Duration":                              "string",
	"meta.v1.FieldsV1":                              "any",
	"meta.v1.MicroTime":                             "micro-time",
	"meta.v1.Time":                                  "time",
	"resource.Quantity":                             "quantity",
	"runtime.RawExtension":                          "any",
}

// The scalars by their kind in Go.
var scalars = map[reflect.Kind]string{
	reflect.String:  "string",
	reflect.Bool:    "boolean",
	reflect.Int32:   "int32",
	reflect.Int64:   "int64",
	reflect.Float64: "double",
}

// The names of OpenAPI begin with these, which the written names leave out.
var packages = []string{
	"io.k8s.apiextensions-apiserver.pkg.apis.",
	"io.k8s.kube-aggregator.pkg.apis.",
	"io.k8s.apimachinery.pkg.apis.",
	"io.k8s.apimachinery.pkg.util.",
	"io.k8s.apimachinery.pkg.api.",
	"io.k8s.apimachinery.pkg.",
	"io.k8s.api.",
}

type writer struct {
	definitions map[string]common.OpenAPIDefinition
	seen        map[reflect.Type]bool
	next        []reflect.Type
}

// A field as JSON has it: fields of embedded structs stand among those of the outer struct.
type field struct {
	name, in string
	goType   reflect.Type
	options  []string
}

// Writes the types and all types of their fields.
func writeTypes(out io.Writer, roots []reflect.Type) {
	reference := func(path string) spec.Ref { return spec.MustCreateRef(path) }
	all := writer{openapi.GetOpenAPIDefinitions(reference), map[reflect.Type]bool{}, nil}
	for _, root := range roots {
		all.reach(root)
	}
	lines := map[string]string{}
	for len(all.next) > 0 {
		of := all.next[0]
		all.next = all.next[1:]
		lines[nameOf(of)] = all.text(of)
	}
	names := make([]string, 0, len(lines))
	for name := range lines {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprint(out, lines[name])
	}
}

func (all *writer) reach(of reflect.Type) {
	if !all.seen[of] {
		all.seen[of] = true
		all.next = append(all.next, of)
	}
}

// The lines of a type.
func (all *writer) text(of reflect.Type) string {
	name := nameOf(of)
	if form, found := forms[name]; found {
		return fmt.Sprintf("type %s = %s\n", name, form)
	}
	definition, found := all.definitions[modelName(of)]
	if !found {
		log.Fatalf("%s has no OpenAPI definition", of)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "type %s", name)
	if mapType, _ := definition.Schema.Extensions.GetString("x-kubernetes-map-type"); mapType != "" {
		fmt.Fprintf(&text, " %s", mapType)
	}
	text.WriteString("\n")
	for _, one := range fields(of, "") {
		property, found := definition.Schema.Properties[one.name]
		if !found {
			log.Fatalf("%s has no property %s", name, one.name)
		}
		fmt.Fprintf(&text, " %s %s", one.name, all.typeText(one.goType))
		if slices.Contains(one.options, "omitempty") {
			text.WriteString("?")
		}
		if slices.Contains(one.options, "omitzero") {
			text.WriteString("!")
		}
		if slices.Contains(definition.Schema.Required, one.name) {
			text.WriteString(" required")
		}
		for _, extension := range [][2]string{
			{"x-kubernetes-list-type", "list"}, {"x-kubernetes-map-type", "map"},
			{"x-kubernetes-patch-strategy", "patch"}, {"x-kubernetes-patch-merge-key", "key"},
		} {
			if value, _ := property.Extensions.GetString(extension[0]); value != "" {
				fmt.Fprintf(&text, " %s=%s", extension[1], value)
			}
		}
		if keys, _ := property.Extensions.GetStringSlice("x-kubernetes-list-map-keys"); len(keys) > 0 {
			fmt.Fprintf(&text, " keys=%s", strings.Join(keys, ","))
		} else if keys, found := property.Extensions["x-kubernetes-list-map-keys"].([]interface{}); found {
			words := make([]string, len(keys))
			for at, key := range keys {
				words[at] = key.(string)
			}
			fmt.Fprintf(&text, " keys=%s", strings.Join(words, ","))
		}
		if len(property.Enum) > 0 {
			words := make([]string, len(property.Enum))
			for at, value := range property.Enum {
				words[at] = value.(string)
			}
			fmt.Fprintf(&text, " enum=%s", strings.Join(words, "|"))
		}
		if one.in != "" {
			fmt.Fprintf(&text, " in=%s", one.in)
		}
		if wanted := shown(zeroOf(one)); shown(property.Default) != wanted {
			fmt.Fprintf(&text, " default=%s", shown(property.Default))
		}
		text.WriteString("\n")
	}
	return text.String()
}

// A default as text; none is -.
func shown(value any) string {
	if value == nil {
		return "-"
	}
	text, err := json.Marshal(value)
	if err != nil {
		log.Fatal(err)
	}
	return string(text)
}

// The default of a field that is always written: its zero value. Of all others there is none.
func zeroOf(one field) any {
	if slices.Contains(one.options, "omitempty") || slices.Contains(one.options, "omitzero") {
		return nil
	}
	switch one.goType.Kind() {
	case reflect.String:
		return ""
	case reflect.Bool:
		return false
	case reflect.Int32, reflect.Int64, reflect.Float64:
		return 0
	case reflect.Struct:
		return map[string]any{}
	default:
		return nil
	}
}

// The fields of a struct in the order of Go.
func fields(of reflect.Type, in string) []field {
	var found []field
	for at := range of.NumField() {
		one := of.Field(at)
		words := strings.Split(one.Tag.Get("json"), ",")
		name, options := words[0], words[1:]
		if name == "-" || !one.IsExported() {
			continue
		}
		if name == "" && one.Anonymous {
			inner := one.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			outer := one.Name
			if one.Name == "TypeMeta" {
				outer = ""
			} else if in != "" {
				outer = in + "." + outer
			}
			found = append(found, fields(inner, outer)...)
			continue
		}
		if name == "" {
			name = one.Name
		}
		found = append(found, field{name, in, one.Type, options})
	}
	return found
}

// The type of a field.
func (all *writer) typeText(of reflect.Type) string {
	own := ""
	if of.PkgPath() != "" {
		own = of.String()
	}
	switch {
	case of.Kind() == reflect.Pointer:
		return "*" + all.typeText(of.Elem())
	case of.Kind() == reflect.Struct:
		all.reach(of)
		return nameOf(of)
	case of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Uint8:
		return "bytes"
	case of.Kind() == reflect.Slice:
		return "[" + own + "]" + all.typeText(of.Elem())
	case of.Kind() == reflect.Map:
		return "{" + own + "}" + all.typeText(of.Elem())
	}
	scalar, found := scalars[of.Kind()]
	if !found {
		log.Fatalf("%s has no form here", of)
	}
	if own != "" {
		return scalar + ":" + own
	}
	return scalar
}

// The name of a type: that of OpenAPI without its beginning.
func nameOf(of reflect.Type) string {
	name := modelName(of)
	for _, beginning := range packages {
		if rest, found := strings.CutPrefix(name, beginning); found {
			return rest
		}
	}
	log.Fatalf("%s has the unknown name %s", of, name)
	return ""
}

func modelName(of reflect.Type) string {
	named, found := reflect.New(of).Elem().Interface().(interface{ OpenAPIModelName() string })
	if !found {
		named, found = reflect.New(of).Interface().(interface{ OpenAPIModelName() string })
	}
	if !found {
		log.Fatalf("%s has no name in OpenAPI", of)
	}
	return named.OpenAPIModelName()
}
