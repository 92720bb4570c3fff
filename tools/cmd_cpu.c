/* cmd_cpu.c - `wok cpu`: the processor, the levels it can run, the kernels of this build. */
#include "cmd.h"

#include <stdlib.h>

static void print_levels(wok_isa_set found, wok_isa_set used) {
    printf("levels:\n");
    for (int i = 0; i < WOK_ISA_COUNT; i++)
        if (found >> i & 1)
            printf("  %-11s %-36s %s\n", wok_isa_name((wok_isa)i), wok_isa_text((wok_isa)i),
                   used >> i & 1 ? "" : "(left out by WOK_ISA)");
}

static void print_kernels(wok_isa_set used) {
    printf("kernels, best first (* cannot run here):\n");
    for (int f = 0; f < WOK_FAMILY_COUNT; f++) {
        int count;
        const wok_kernel *const *list = wok_kernel_list((wok_family)f, &count);
        printf("  %-9s", wok_family_name((wok_family)f));
        for (int i = 0; i < count; i++) printf(" %s%s", list[i]->name, used >> list[i]->isa & 1 ? "" : "*");
        printf("\n");
    }
}

static int print_json(wok_isa_set found, wok_isa_set used) {
    const wok_cpu_features *cpu = wok_cpu();
    cmd_json json;
    json_start(&json, stdout);
    json_object(&json);
    json_key(&json, "version"), json_text(&json, wok_version());
    json_key(&json, "processor"), json_text(&json, cpu->brand);
    json_key(&json, "levels"), json_array(&json);
    for (int i = 0; i < WOK_ISA_COUNT; i++)
        if (found >> i & 1) json_text(&json, wok_isa_name((wok_isa)i));
    json_array_end(&json);
    json_key(&json, "kernels"), json_object(&json);
    for (int f = 0; f < WOK_FAMILY_COUNT; f++) {
        int count;
        const wok_kernel *const *list = wok_kernel_list((wok_family)f, &count);
        json_key(&json, wok_family_name((wok_family)f)), json_array(&json);
        for (int i = 0; i < count; i++)
            if (used >> list[i]->isa & 1) json_text(&json, list[i]->name);
        json_array_end(&json);
    }
    json_object_end(&json);
    json_object_end(&json);
    return json_finish(&json) ? 0 : cmd_error("stdout cannot be written");
}

int cmd_cpu(int argc, char **argv) {
    bool as_json = false;
    const cmd_option options[] = {{"--json", OPT_FLAG, &as_json, NULL, "one JSON object"}};
    cmd_list none;
    int status;
    if (!cmd_parse(argc, argv, options, CMD_OPTION_COUNT(options), 0, 0, &none, &status)) return status;
    cmd_list_free(&none);
    wok_isa_set used;
    const char *error = wok_cpu_select(getenv("WOK_ISA"), &used);
    if (error) return cmd_error("%s", error);
    if (as_json) return print_json(wok_cpu_isa(), used);
    const wok_cpu_features *cpu = wok_cpu();
    printf("%s\ncaches: L1d %zu KiB, L2 %zu KiB, L3 %zu KiB\n", cpu->brand[0] ? cpu->brand : "unknown processor",
           cpu->l1d_bytes >> 10, cpu->l2_bytes >> 10, cpu->l3_bytes >> 10);
    print_levels(wok_cpu_isa(), used);
    print_kernels(used);
    return 0;
}
