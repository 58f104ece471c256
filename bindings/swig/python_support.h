/* python_support.h: errors, lists and text between the library and Python. Included by the generated wrapper. */
#ifndef RINGATTN_PYTHON_SUPPORT_H
#define RINGATTN_PYTHON_SUPPORT_H
#include <Python.h>
#include <ringattn.h>
#include <stdlib.h>
#include <string.h>

/* Raises the exception of a status. Its message must be read before anything else calls the library. */
static void ra_raise(ringattn_status status) {
  PyObject* message =
      PyUnicode_DecodeUTF8(ringattn_last_error(), (Py_ssize_t)strlen(ringattn_last_error()), "replace");
  PyObject* module = PyImport_ImportModule("ringattn.errors");
  PyObject* error = module == NULL || message == NULL
                        ? NULL
                        : PyObject_CallMethod(module, "from_status", "iO", (int)status, message);
  if (error != NULL) PyErr_SetObject((PyObject*)Py_TYPE(error), error);
  Py_XDECREF(error);
  Py_XDECREF(module);
  Py_XDECREF(message);
}

/* Adds an out parameter to a result: none so far, one, or a tuple. */
static PyObject* ra_output(PyObject* result, PyObject* value) {
  if (result == NULL || result == Py_None) {
    Py_XDECREF(result);
    return value;
  }
  PyObject* before = PyTuple_Check(result) ? result : PyTuple_Pack(1, result);
  PyObject* last = PyTuple_Pack(1, value);
  PyObject* all = before == NULL || last == NULL ? NULL : PySequence_Concat(before, last);
  if (before != result) Py_XDECREF(before);
  Py_XDECREF(last);
  Py_DECREF(result);
  Py_DECREF(value);
  return all;
}

static PyObject* ra_int64s(const int64_t* values, int count) {
  PyObject* tuple = PyTuple_New(count);
  for (int i = 0; tuple != NULL && i < count; ++i) PyTuple_SetItem(tuple, i, PyLong_FromLongLong(values[i]));
  return tuple;
}

/* Numbers with memory of their own. */
typedef struct ringattn_int64s {
  int64_t count;
  int64_t values[1];
} ringattn_int64s;

static ringattn_int64s* ra_int64s_new(PyObject* values) {
  Py_ssize_t count = PySequence_Size(values);
  if (count < 0) return NULL;
  ringattn_int64s* made = (ringattn_int64s*)PyMem_Calloc(1, sizeof *made + (size_t)count * sizeof(int64_t));
  if (made == NULL) return (ringattn_int64s*)PyErr_NoMemory();
  made->count = count;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PySequence_GetItem(values, i);
    PyObject* number = item == NULL ? NULL : PyNumber_Index(item);
    made->values[i] = number == NULL ? -1 : PyLong_AsLongLong(number);
    Py_XDECREF(item);
    Py_XDECREF(number);
    if (PyErr_Occurred()) {
      PyMem_Free(made);
      return NULL;
    }
  }
  return made;
}

/* Zeroed room for each entry of a sequence. */
static int ra_list(PyObject* sequence, const char* name, size_t size, void** memory, int32_t* count) {
  Py_ssize_t entries = PySequence_Check(sequence) ? PySequence_Size(sequence) : -1;
  if (entries < 0 || entries > 4096) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s: expected a sequence of at most 4096 entries", name);
    return -1;
  }
  *memory = PyMem_Calloc(entries > 0 ? (size_t)entries : 1, size);
  if (*memory == NULL) return PyErr_NoMemory(), -1;
  *count = (int32_t)entries;
  return 0;
}

/* -- All-gather by a Python callable ---------------------------------------------------------------------- */
typedef struct ra_allgather {
  PyObject* callable;
  int32_t world_size;
  PyObject *type, *value, *trace; /* what the callable raised */
} ra_allgather;

static int ra_gathered(PyObject* parts, int32_t world_size, uint64_t bytes, char* all) {
  if (!PySequence_Check(parts) || PySequence_Size(parts) != world_size) {
    /* not what it holds: the ranks' secret is in there */
    PyErr_Format(PyExc_ValueError,
                 "allgather returned %R of %lld entries; expected a sequence of %d bytes objects, one a rank",
                 (PyObject*)Py_TYPE(parts), PySequence_Check(parts) ? (long long)PySequence_Size(parts) : -1,
                 (int)world_size);
    return -1;
  }
  for (int32_t r = 0; r < world_size; ++r) {
    char* text = NULL;
    Py_ssize_t length = 0;
    PyObject* part = PySequence_GetItem(parts, r);
    int bad = part == NULL || PyBytes_AsStringAndSize(part, &text, &length) != 0;
    if (!bad && (uint64_t)length != bytes) {
      PyErr_Format(PyExc_ValueError, "allgather returned %lld bytes for rank %d; expected %llu",
                   (long long)length, (int)r, (unsigned long long)bytes);
      bad = 1;
    }
    if (!bad) memcpy(all + (uint64_t)r * bytes, text, (size_t)bytes);
    Py_XDECREF(part);
    if (bad) return -1;
  }
  return 0;
}

static int32_t ra_allgather_call(void* user, const void* own, uint64_t bytes, void* all) {
  ra_allgather* state = (ra_allgather*)user;
  PyGILState_STATE lock = PyGILState_Ensure();
  PyObject* given = PyBytes_FromStringAndSize((const char*)own, (Py_ssize_t)bytes);
  PyObject* parts = given == NULL ? NULL : PyObject_CallFunctionObjArgs(state->callable, given, NULL);
  int bad = parts == NULL || ra_gathered(parts, state->world_size, bytes, (char*)all) != 0;
  Py_XDECREF(given);
  Py_XDECREF(parts);
  if (bad) PyErr_Fetch(&state->type, &state->value, &state->trace);
  PyGILState_Release(lock);
  return bad;
}

/* What the callable raised says more than that it failed. */
static int ra_allgather_failed(void* user) {
  ra_allgather* state = (ra_allgather*)user;
  if (state->type == NULL) return 0;
  PyErr_Restore(state->type, state->value, state->trace);
  return 1;
}

/* -- What fills memory of the caller in C returns an object here ---------------------------------------------- */
static PyObject* ra_plan_describe(const ringattn_plan* plan, const ringattn_call* call, int32_t format) {
  uint64_t needed = 0;
  ringattn_status status = ringattn_plan_describe(plan, call, format, NULL, 0, &needed);
  char* text = status == RINGATTN_OK ? (char*)malloc(needed) : NULL;
  if (text != NULL) status = ringattn_plan_describe(plan, call, format, text, needed, &needed);
  PyObject* result = NULL;
  if (status != RINGATTN_OK)
    ra_raise(status);
  else if (text == NULL)
    PyErr_NoMemory();
  else
    result = PyUnicode_FromString(text);
  free(text);
  return result;
}

static PyObject* ra_event(const ringattn_event* e) {
  return Py_BuildValue("(iiiiiKKK)", e->kind, e->worker, e->peer, e->block, e->item,
                       (unsigned long long)e->start_ns, (unsigned long long)e->end_ns,
                       (unsigned long long)e->bytes);
}

/* ([(kind, worker, peer, block, item, start_ns, end_ns, bytes), ...], dropped) */
static PyObject* ra_plan_trace(const ringattn_plan* plan) {
  uint64_t count = 0, dropped = 0;
  ringattn_status status = ringattn_plan_trace(plan, NULL, 0, &count, &dropped);
  ringattn_event* events = (ringattn_event*)calloc(count + 1, sizeof *events);
  if (events == NULL) return PyErr_NoMemory();
  events[0].struct_size = sizeof *events;
  if (status == RINGATTN_OK && count > 0) status = ringattn_plan_trace(plan, events, count, &count, &dropped);
  if (status != RINGATTN_OK) {
    free(events);
    ra_raise(status);
    return NULL;
  }
  PyObject* list = PyList_New((Py_ssize_t)count);
  for (uint64_t i = 0; list != NULL && i < count; ++i)
    PyList_SetItem(list, (Py_ssize_t)i, ra_event(&events[i]));
  free(events);
  return list == NULL ? NULL : Py_BuildValue("(NK)", list, (unsigned long long)dropped);
}

/* (index, position): two bytearrays of int64. */
static PyObject* ra_plan_positions(const ringattn_plan* plan, int32_t axis, int32_t rank, int64_t batch_row,
                                   const ringattn_call* call) {
  int64_t length = 0;
  uint64_t count = 0;
  ringattn_status status = ringattn_plan_local_length(plan, axis, rank, batch_row, call, &length);
  if (status != RINGATTN_OK) return ra_raise(status), NULL;
  PyObject* index = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(length * 8));
  PyObject* position = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(length * 8));
  if (index == NULL || position == NULL) {
    Py_XDECREF(index);
    Py_XDECREF(position);
    return NULL;
  }
  status = ringattn_plan_positions(plan, axis, rank, batch_row, call, (int64_t*)PyByteArray_AsString(index),
                                   (int64_t*)PyByteArray_AsString(position), (uint64_t)length, &count);
  if (status == RINGATTN_OK) return Py_BuildValue("(NN)", index, position);
  Py_DECREF(index);
  Py_DECREF(position);
  ra_raise(status);
  return NULL;
}

static PyObject* ra_unique_id_to_text(const ringattn_unique_id* id) {
  char text[RINGATTN_UNIQUE_ID_TEXT];
  ringattn_status status = ringattn_unique_id_to_text(id, text, sizeof text);
  if (status != RINGATTN_OK) return ra_raise(status), NULL;
  return PyUnicode_FromString(text);
}
#endif
